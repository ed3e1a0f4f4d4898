"""NVIDIA's accelerators as their management library (NVML) shows them: whole cards, and slices where MIG is on.

The accelerators are those of the first look. One that gets lost keeps its place and has a problem for as long as it is
away; slices made later are seen by the agent's next life. Calls ask and listen, and set nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from tiercel.trainer_agent.accelerators import nvidia_health
from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading, AcceleratorsUnavailableError
from tiercel.trainer_agent.accelerators.nvidia_health import Xids
from tiercel.trainer_agent.accelerators.nvidia_session import Session
from tiercel.trainer_agent.accelerators.nvml import Nvml

_log = logging.getLogger(__name__)

REOPEN_SECONDS: Final = 30.0
"""How long to wait before asking anew for an accelerator that did not answer."""


class NvidiaAccelerators:
    """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`.

    Args:
        only: Ids of the accelerators to use, in whatever order; empty for all.

    Raises:
        AcceleratorsUnavailableError: The driver does not answer, or does not show an accelerator of ``only``.
    """

    def __init__(self, library: Nvml, only: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = library
        self._clock = clock
        self._xids = Xids()
        self._session: Session | None = Session(library, self._xids, clock)
        self._silence = ""
        # Whether an accelerator did not answer at the last look, and when to ask for it in a new session.
        self._is_incomplete = False
        self._reopen_at = 0.0
        self._accelerators = _usable(self._session, only)
        missing = set(only) - {accelerator.id for accelerator in self._accelerators}
        if missing:
            shown = ", ".join(accelerator.id for accelerator in self._session.listed) or "none"
            self.close()
            raise AcceleratorsUnavailableError(f"{', '.join(sorted(missing))} is not there; the driver shows {shown}")

    @property
    def listed(self) -> tuple[Accelerator, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
        return self._accelerators

    def look(self) -> tuple[AcceleratorReading, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
        now = self._clock()
        if self._is_incomplete and now >= self._reopen_at:
            self._reopen(now)
        if self._session is None:
            return tuple(
                AcceleratorReading(accelerator.id, problem=self._silence) for accelerator in self._accelerators
            )
        shown = self._session.look()
        gone = nvidia_health.gone(self._session.left_out)
        readings = tuple(
            shown.get(accelerator.id, AcceleratorReading(accelerator.id, problem=gone))
            for accelerator in self._accelerators
        )
        was_incomplete = self._is_incomplete
        self._is_incomplete = self._session.is_broken or any(
            accelerator.id not in shown for accelerator in self._accelerators
        )
        if self._is_incomplete and not was_incomplete:
            self._reopen_at = now + REOPEN_SECONDS
        return readings

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _reopen(self, now: float) -> None:
        self._reopen_at = now + REOPEN_SECONDS
        self.close()
        try:
            self._session = Session(self._nvml, self._xids, self._clock)
        except AcceleratorsUnavailableError as error:
            self._silence = f"The driver does not answer any more ({error}): see nvidia-smi."


def _usable(session: Session, only: Collection[str]) -> tuple[Accelerator, ...]:
    for message in session.left_out:
        _log.warning("an accelerator is left out: %s", message)
    found = [accelerator for accelerator in session.listed if not only or accelerator.id in only]
    for accelerator in found:
        if not accelerator.memory_bytes:
            _log.warning(
                "%s (%s) is left out: its driver does not say how much memory it has", accelerator.id, accelerator.name
            )
    return tuple(accelerator for accelerator in found if accelerator.memory_bytes)
