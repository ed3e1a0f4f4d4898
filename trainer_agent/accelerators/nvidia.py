"""NVIDIA's accelerators as their management library (NVML) shows them: whole cards, and slices where MIG is on.

The devices are those of the first look. One that gets lost keeps its place and has a problem for as long as it is away;
slices made later are seen by the agent's next life. Calls ask and listen, and set nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from tiercel.trainer_agent.accelerators import nvidia_health
from tiercel.trainer_agent.accelerators.contract import AcceleratorsUnavailableError, Device, Reading
from tiercel.trainer_agent.accelerators.nvidia_health import Xids
from tiercel.trainer_agent.accelerators.nvidia_session import Session
from tiercel.trainer_agent.accelerators.nvml import Nvml

_log = logging.getLogger(__name__)

REOPEN_SECONDS: Final = 30.0
"""How long to wait before asking anew for a device that did not answer."""


class NvidiaAccelerators:
    """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`.

    Args:
        library: NVML.
        only: Ids of the devices to use, in whatever order; empty for all.
        clock: Seconds that do not jump.

    Raises:
        AcceleratorsUnavailableError: The driver does not answer, or does not show a device of ``only``.
    """

    def __init__(self, library: Nvml, only: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = library
        self._clock = clock
        self._xids = Xids()
        self._session: Session | None = Session(library, self._xids, clock)
        self._silence = ""
        # Whether a device did not answer at the last look, and when to ask for it in a new session.
        self._is_incomplete = False
        self._reopen_at = 0.0
        self._devices = _usable(self._session, only)
        missing = set(only) - {device.id for device in self._devices}
        if missing:
            shown = ", ".join(device.id for device in self._session.devices) or "none"
            self.close()
            raise AcceleratorsUnavailableError(f"{', '.join(sorted(missing))} is not there; the driver shows {shown}")

    @property
    def devices(self) -> tuple[Device, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
        return self._devices

    def look(self) -> tuple[Reading, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
        now = self._clock()
        if self._is_incomplete and now >= self._reopen_at:
            self._reopen(now)
        if self._session is None:
            return tuple(Reading(device.id, problem=self._silence) for device in self._devices)
        shown = self._session.look()
        gone = nvidia_health.gone(self._session.left_out)
        readings = tuple(shown.get(device.id, Reading(device.id, problem=gone)) for device in self._devices)
        was_incomplete = self._is_incomplete
        self._is_incomplete = self._session.is_broken or any(device.id not in shown for device in self._devices)
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


def _usable(session: Session, only: Collection[str]) -> tuple[Device, ...]:
    for sentence in session.left_out:
        _log.warning("an accelerator is left out: %s", sentence)
    found = [device for device in session.devices if not only or device.id in only]
    for device in found:
        if not device.memory_bytes:
            _log.warning("%s (%s) is left out: its driver does not say how much memory it has", device.id, device.name)
    return tuple(device for device in found if device.memory_bytes)
