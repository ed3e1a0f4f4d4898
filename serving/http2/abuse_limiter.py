"""How much of what costs work and brings nothing a peer may send, and how long it may take."""

from __future__ import annotations

from enum import Enum

from tiercel.serving.http2.frames import ENHANCE_YOUR_CALM, ConnectionFailedError

_FULL = 2000
_PER_SECOND = 200
_PER_ANSWER = 10


class AbuseLimiter:
    """Credit for frames that bring no request forward: PING, SETTINGS, RST_STREAM, WINDOW_UPDATE, empty DATA and so on.

    Every such frame takes one. A second gives 200 back and an answer that was sent, or a message of one, 10, up to
    2,000. So neither keep-alive nor flow control nor a client that cancels much at times runs out, and floods of pings,
    settings, empty frames or resets (CVE-2019-9512 and its like, CVE-2023-44487) do within 2,000 frames.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: float = _FULL

    def spend(self) -> None:
        """Such a frame came.

        Raises:
            ConnectionFailedError: There was one too many.
        """
        self._left -= 1
        if self._left < 0:
            raise ConnectionFailedError(ENHANCE_YOUR_CALM, "too many frames that bring no request forward")

    def earn(self) -> None:
        """A request was answered, or a message of an answer was sent."""
        if self._left < _FULL:
            self._left += _PER_ANSWER

    def refill(self, seconds: float) -> None:
        """Time went by."""
        self._left = min(_FULL, self._left + seconds * _PER_SECOND)


class AbuseVerdict(Enum):
    """What is to be done about a connection."""

    WAIT = "nothing"
    ASK = "ask for a sign of life"
    LEAVE = "it is idle"
    BREAK = "the peer is too slow"


class Timeouts:
    """When a peer was last active, and since when something is unfinished.

    Args:
        idle: Seconds of silence that are fine.
        read: Seconds in which what was begun must be finished.
        now: Seconds of a steady clock.

    Attributes:
        now: As of the last check.
        received_at: When bytes came last.
        unfinished_since: When what is not whole yet began to arrive: the preface, a frame or a header block.
    """

    __slots__ = ("_asked", "_idle", "_idle_from", "_read", "_stuck_from", "now", "received_at", "unfinished_since")

    def __init__(self, idle: float, read: float, now: float) -> None:
        self._idle = idle
        self._read = read
        self._asked = False
        self._idle_from = (now, 0)
        self._stuck_from = (now, 0)
        self.now = now
        self.received_at = now
        self.unfinished_since: float | None = now

    def note_unfinished(self, *, in_frame: bool, in_block: bool, progressed: bool) -> None:
        """Bytes came, and that was the rest of them.

        Args:
            in_frame: Whether a part of a frame is left.
            in_block: Whether the end of a header block has not come; as long as that is so, no frame of it helps.
            progressed: Whether a whole frame came.
        """
        if not in_frame and not in_block:
            self.unfinished_since = None
        elif self.unfinished_since is None or (progressed and not in_block):
            self.unfinished_since = self.now

    def check(self, now: float, *, streams: int, last: int, blocked: bool, progress: int) -> AbuseVerdict:
        """What is to be done at ``now``.

        Args:
            now: Seconds of the clock.
            streams: How many are open.
            last: Number of the last stream that was opened.
            blocked: Whether bytes wait for the peer to take them.
            progress: Grows with everything that was sent.
        """
        self.now = now
        if self.unfinished_since is not None and now - self.unfinished_since > self._read:
            return AbuseVerdict.BREAK
        if not blocked or progress != self._stuck_from[1]:
            self._stuck_from = (now, progress)
        elif now - self._stuck_from[0] > self._read:
            return AbuseVerdict.BREAK
        if streams or last != self._idle_from[1]:
            self._idle_from = (now, last)
        elif now - self._idle_from[0] > self._idle:
            return AbuseVerdict.LEAVE
        return self._check_silence(now) if streams else AbuseVerdict.WAIT

    def _check_silence(self, now: float) -> AbuseVerdict:
        silence = now - self.received_at
        if silence <= self._idle:
            self._asked = False
            return AbuseVerdict.WAIT
        if silence > self._idle + self._read:
            return AbuseVerdict.BREAK
        if self._asked:
            return AbuseVerdict.WAIT
        self._asked = True
        return AbuseVerdict.ASK
