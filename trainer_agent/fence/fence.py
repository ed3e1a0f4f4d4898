"""How long the agent may go without its broker before it ends what may soon run elsewhere."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tiercel.core.complaints import Complaint
from tiercel.trainer_agent.disk.files import write_atomically

if TYPE_CHECKING:
    from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

FENCE_FILE: Final = "fence.json"
"""Below the agent's state directory."""

_REMEMBERED_HEARTBEATS: Final = 64
# A later life may hold the contact for older than it was by this much, which errs on the safe side.
_SAVE_SECONDS: Final = 5.0


def since_boot() -> float:
    """Seconds by a clock that nobody sets and that also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Promise:
    """What an agent has promised its broker, as it was written down last."""

    contact_at: float  # when the last message was sent that the broker answered; see :func:`since_boot`
    stop_after: float  # seconds after that, from which runs are to be stopped
    end_after: float  # seconds after that, from which no run may live


def read_promise(path: Path, now: float) -> Promise | None:
    """What is written down; None for nothing, also for what was written before the machine was started."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(path.read_bytes())
        limits = (float(known["stop_after_seconds"]), float(known["end_after_seconds"]))
        promise = Promise(float(known["contact_at"]), *limits)
        return promise if promise.contact_at <= now else None
    return None


class Fence:
    """Keeps the agent's side of a promise: what it ran is over before the broker starts it elsewhere.

    Time without the broker counts from when the last message was sent that the broker answered. Without a fence from
    the broker there is no promise, and runs go on for however long the broker is away.

    Args:
        path: Remembers it for the agent's next life, which may find runs that still live.
        clock: In seconds; see :func:`since_boot`.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = since_boot) -> None:
        self._path = path
        self._clock = clock
        self._sent: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_HEARTBEATS)
        self._contact_at = clock()
        self._saved_at = -math.inf
        self._limits: tuple[float, float] | None = None
        self._complaint = Complaint(_log, "the time of the last contact with the broker cannot be written down: %s")
        self._load()

    @property
    def is_kept(self) -> bool:
        """Whether the broker gave one."""
        return self._limits is not None

    @property
    def has_fallen(self) -> bool:
        """Whether runs are to be stopped now."""
        return self._limits is not None and self.silence_seconds >= self._limits[0]

    @property
    def seconds_left(self) -> float:
        """Seconds until no run may live any more, at least 0; infinite without a fence."""
        return max(0.0, self._limits[1] - self.silence_seconds) if self._limits is not None else math.inf

    @property
    def silence_seconds(self) -> float:
        """Seconds since the last message was sent that the broker answered; of none, since the agent's start."""
        return self._clock() - self._contact_at

    def note_sent(self, number: int) -> None:
        """A heartbeat (number from 1) or a hello (0) is about to be sent."""
        self._sent.append((number, self._clock()))

    def note_answered(self, number: int, fence: nodes_pb2.Fence | None) -> None:
        """The broker answered it, and said what holds from now on.

        Args:
            number: Which.
            fence: The broker's word; None for no fence.
        """
        for sent, at in self._sent:
            if sent == number:
                self._contact_at = max(self._contact_at, at)
        while self._sent and self._sent[0][0] <= number:
            self._sent.popleft()
        before = self._limits
        self._limits = (fence.stop_after_seconds, fence.end_after_seconds) if fence is not None else None
        if self._limits != before or (self._limits and self._clock() - self._saved_at >= _SAVE_SECONDS):
            self._save()

    def _load(self) -> None:
        promise = read_promise(self._path, self._contact_at) if self._path is not None else None
        if promise is not None:
            self._limits, self._contact_at = (promise.stop_after, promise.end_after), promise.contact_at

    def _save(self) -> None:
        self._saved_at = self._clock()
        if self._path is None:
            return
        try:
            if self._limits is None:
                self._path.unlink(missing_ok=True)
                return
            stop_after, end_after = self._limits
            known = {"stop_after_seconds": stop_after, "end_after_seconds": end_after, "contact_at": self._contact_at}
            write_atomically(self._path, json.dumps(known).encode())
            self._complaint.note("")
        except OSError as error:
            self._complaint.note(str(error))
