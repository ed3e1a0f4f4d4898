"""On how many nodes an endpoint answers whose job leaves that to the broker (``replicas: auto``): pure.

More soon, when answers come late or the CPU is busy; fewer slowly, one at a time, when one fewer would do for minutes.
What keeps it from going to and fro: what is left to do for each node after an addition is more than what takes one away
again, and what was asked of each when they were too few is remembered. A model that is late by itself is no reason for
more: an addition that changed nothing is taken back, and none follows it until more is asked.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Final

from tiercel.core.figures import percent
from tiercel.core.validation import MAX_REPLICAS

LOOK_SECONDS: Final = 5.0
"""How often it is decided; readings are of as long."""
GROW_SECONDS: Final = 10.0
"""For how long answers are late, or the CPU is busy, before there are more."""
SHRINK_SECONDS: Final = 300.0
"""For how long one fewer would do before there is one fewer."""
COPY_SECONDS: Final = 120.0
"""How long what was added may take to answer; until then nothing is decided."""
LATE: Final = 0.05
"""Part of the requests that may be late."""
BUSY: Final = 0.7
"""Part of the CPU that answers may take."""
AFTER_GROWTH: Final = 0.5
"""Part of the CPU that they shall take once there are more."""
AFTER_SHRINKING: Final = 0.4
"""Part of the CPU that they may take once there is one fewer."""
LAG_SECONDS: Final = 0.1
"""By how much an inference server may come to reading requests late, where nobody said how soon answers are wanted."""
WAITING: Final = 0.5
"""Requests under way at a node from which on they wait for each other, so that another node may help."""
_BELOW_LIMIT: Final = 0.6  # of what was too much for each node: what may be asked of each once there is one fewer
_BETTER: Final = 1.2  # times as many answers, or as few late ones: then it is not as it was
_OF_WHAT_IT_COULD: Final = 0.5  # part of the answers that an addition could give which it gives if it helps
_LOOKS_IN_TIME: Final = 6  # in a row, after which what is late is late anew
_DEVIATIONS: Final = 3.0  # of what chance does to a few requests, before they count as late


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of an endpoint in the last few seconds, on all nodes together."""

    answering: int  # how many nodes answer
    able: int  # how many answer or could, if they were chosen
    whole: bool = True  # whether all answer that shall
    ended: int = 0  # requests that were answered, or refused, or failed
    requests_per_second: float = 0.0  # requests that arrived
    answers_per_second: float = 0.0  # those that were answered
    # Part of those that ended that was not answered within the objective; without one, not answered at all.
    late: float = 0.0
    # Whether a server came to reading requests so late that these were late by that alone; not in ``late``.
    lagging: bool = False
    under_way: float = 0.0  # requests that were being answered, or waited to be read, at a time
    busy: float = 0.0  # part of the CPU that other endpoints leave on its nodes which its answers took

    @property
    def all_late(self) -> float:
        """Part of the requests that was late for whoever asked, as far as that is known."""
        return 1.0 if self.lagging else self.late

    @property
    def surely_late(self) -> float:
        """Part of its requests of which more than chance says that it is late: of two requests one says little."""
        if self.lagging or not self.ended:
            return self.all_late
        chance = _DEVIATIONS**2 / self.ended  # the lower end of Wilson's interval
        spread = math.sqrt(self.late * (1 - self.late) / self.ended + chance / (4 * self.ended))
        return max(0.0, (self.late + chance / 2 - _DEVIATIONS * spread) / (1 + chance))

    def __str__(self) -> str:
        rate = self.requests_per_second
        late = ("read late, " if self.lagging else f"{percent(self.late)} of them late, ") if self.ended else ""
        return f"{rate:.{0 if rate >= 100 else 1}f} requests/s, {late}{percent(self.busy)} of its CPU busy"


class Mood(enum.Enum):
    """How an endpoint is at a look: it needs more, has what it needs, or would do with one fewer."""

    PRESSED = enum.auto()
    EASY = enum.auto()
    CALM = enum.auto()


@dataclass(frozen=True, slots=True)
class Attempt:
    """How late answers were, how many there were, and on how many nodes, when more were added for that.

    ``in_time`` counts the looks in a row since then at which as many were not late.
    """

    late: float
    answers_per_second: float
    nodes: int
    in_time: int = 0

    def was_in_vain(self, reading: Reading) -> bool:
        """Whether as much is as late as it was before."""
        more = _OF_WHAT_IT_COULD * (reading.answering / self.nodes - 1)
        better = 1 + more if more > 0 else _BETTER
        is_as_late = reading.all_late * _BETTER > self.late
        return is_as_late and reading.answers_per_second < self.answers_per_second * better


@dataclass(frozen=True, slots=True)
class Trend:
    """What is remembered from one look to the next."""

    mood: Mood = Mood.EASY  # how it was at the last look
    since: float = -math.inf  # since when, seconds of the caller's clock
    added_at: float = -math.inf  # when nodes were added last
    limit: float | None = None  # requests per second and node that were too many, or None
    attempt: Attempt | None = None  # the last addition for late answers, unless these are not late since; None: none
    because: str = "that will do"  # why there are as many as there are


@dataclass(frozen=True, slots=True)
class Decision:
    """How many nodes there shall be, why in plain words, and what to remember until the next look."""

    count: int
    reason: str
    trend: Trend


def decide(count: int, reading: Reading | None, trend: Trend, now: float) -> Decision:
    """On how many nodes an endpoint shall answer from now on.

    Args:
        count: On how many it shall answer by now, from 1 to :data:`.MAX_REPLICAS`.
        reading: What was measured since the last look; None where a node that answers was not heard.
        trend: What the last look left.
        now: Seconds of any steady clock.
    """
    if reading is None or not reading.answering:
        return Decision(count, "nothing is measured of it at present", replace(trend, mood=Mood.EASY, since=now))
    if not reading.whole and now - trend.added_at < COPY_SECONDS:
        reason = f"{trend.because}; not all of these nodes answer yet"
        return Decision(count, reason, replace(trend, mood=Mood.EASY, since=now))
    mood = _mood(count, reading, trend)
    trend = _after_attempt(replace(trend, mood=mood, since=trend.since if mood is trend.mood else now), reading)
    lasted = now - trend.since
    if mood is Mood.PRESSED:
        if lasted >= GROW_SECONDS:
            return _grown(count, reading, trend, now)
        return Decision(count, f"{reading}; more if that lasts", trend)
    if mood is Mood.CALM:
        if lasted >= SHRINK_SECONDS:
            because = f"{count - 1} after {count} since one fewer would do"
            return Decision(count - 1, f"{reading}; {because}", replace(trend, since=now, because=because))
        return Decision(count, f"{reading}; one fewer if that lasts {SHRINK_SECONDS:.0f} s", trend)
    if reading.surely_late > LATE and _is_in_vain(reading, trend):
        return Decision(count, f"{reading}; another node did not make that better", trend)
    return Decision(count, f"{reading}; {trend.because}", trend)


def _is_in_vain(reading: Reading, trend: Trend) -> bool:
    return trend.attempt is not None and trend.attempt.was_in_vain(reading)


def _mood(count: int, reading: Reading, trend: Trend) -> Mood:
    in_vain = _is_in_vain(reading, trend)
    waiting = reading.under_way >= WAITING * reading.answering
    if reading.busy >= BUSY or (reading.surely_late > LATE and waiting and not in_vain):
        return Mood.PRESSED
    fewer = count - 1
    if not fewer or not reading.whole or reading.busy * reading.answering > AFTER_SHRINKING * fewer:
        return Mood.EASY
    if in_vain and trend.attempt is not None and count > trend.attempt.nodes:
        return Mood.CALM
    if trend.limit is not None:
        fits = reading.requests_per_second <= _BELOW_LIMIT * trend.limit * fewer
    else:  # nobody knows when there were too few: only where hardly any request meets another one
        fits = reading.under_way <= WAITING / 2 * fewer
    return Mood.CALM if fits and reading.surely_late <= LATE / 2 else Mood.EASY


def _grown(count: int, reading: Reading, trend: Trend, now: float) -> Decision:
    most = min(MAX_REPLICAS, reading.able)
    if count >= most:
        why = f"{count} are as many as may be" if count >= MAX_REPLICAS else "no other node is up, serves and has room"
        return Decision(count, f"{reading}; {why}", trend)
    is_busy = reading.busy >= BUSY
    needed = math.ceil(reading.answering * reading.busy / AFTER_GROWTH) if is_busy else 0
    grown = min(max(count + 1, needed), most)
    because = f"{grown} after {count} since " + (
        f"{percent(reading.busy)} of its CPU was busy"
        if is_busy
        else f"{percent(reading.all_late)} of its requests were late"
    )
    trend = replace(
        trend,
        mood=Mood.EASY,
        since=now,
        added_at=now,
        limit=reading.requests_per_second / reading.answering,
        attempt=None if is_busy else Attempt(reading.all_late, reading.answers_per_second, reading.answering),
        because=because,
    )
    return Decision(grown, f"{reading}; {because}", trend)


def _after_attempt(trend: Trend, reading: Reading) -> Trend:
    """What an addition for late answers is taken for by now: after a while in time it helped, and counts no more."""
    attempt = trend.attempt
    if attempt is None:
        return trend
    in_time = reading.all_late <= LATE / 2 and reading.answers_per_second * _BETTER >= attempt.answers_per_second
    looks = attempt.in_time + 1 if in_time else 0
    return replace(trend, attempt=replace(attempt, in_time=looks) if looks < _LOOKS_IN_TIME else None)
