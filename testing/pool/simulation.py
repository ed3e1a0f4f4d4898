"""An event-driven simulator of one pool of workers, of one kind or several, one variant a run.

Like the live dispatcher it asks the scheduler only when a worker is free and something waits, and serves requests in
the order that :mod:`~tiercel.serving.scheduling.waiting` says.
"""

from __future__ import annotations

import bisect
import copy
import math
import operator
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tiercel.serving.scheduling.interface import (
    PATIENCE,
    RATE_OBJECTIVES,
    RECENT_OBJECTIVES,
    ArrivalRate,
    Choice,
    Ended,
    Profile,
    Scheduler,
    View,
    WorkerKind,
)
from tiercel.serving.scheduling.utility import Utility
from tiercel.serving.scheduling.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Pool:
    """What is simulated."""

    kinds: tuple[WorkerKind, ...]  # the workers and when each is free first
    objective: float  # seconds of delay aimed at
    utility: Utility  # what an answer is worth
    jitter: float = 0.0  # standard deviation of the logarithm of a run's duration over its profile's; 0 for none

    @property
    def capacity(self) -> float:
        """Rows per second of all workers with the fastest variant and batches that end within the objective."""
        return sum(
            len(kind.busy) * max(profile.capacity(profile.largest_within(self.objective)) for profile in kind.profiles)
            for kind in self.kinds
        )

    @property
    def quickest(self) -> float:
        """Seconds of the shortest run there is."""
        return min(profile.seconds[0] for kind in self.kinds for profile in kind.profiles)

    @property
    def useless_after(self) -> float:
        """Seconds of delay after which no variant's answer is of use."""
        return self.utility.useless_after(self.kinds[0].profiles[0].accuracy, self.objective)


def alike(profiles: tuple[Profile, ...], workers: int) -> tuple[WorkerKind, ...]:
    """So many workers of one kind, all of them free."""
    return (WorkerKind(profiles, (0.0,) * workers),)


@dataclass(slots=True)
class Score:
    """What came of a run."""

    utility: float = 0.0  # added up over the requests that were answered; the others score 0
    answered: int = 0  # how many were
    in_time: int = 0  # how many of them within the objective
    dropped: int = 0  # requests given up
    decisions: int = 0  # how often the scheduler was asked
    waits: int = 0  # how often it chose to wait
    rows: dict[str, int] = field(default_factory=dict)  # answered requests by variant
    delays: list[float] = field(default_factory=list)  # of the answered requests, in order of dispatch

    @property
    def mean(self) -> float:
        """Utility per request that arrived; 0 if none did."""
        total = self.answered + self.dropped
        return self.utility / total if total else 0.0


class _Request:
    """One that waits; see :class:`~tiercel.serving.scheduling.waiting.Waits`."""

    __slots__ = ("rows", "since", "useless_at")

    def __init__(self, since: float, useless_at: float) -> None:
        self.since = since
        self.useless_at = useless_at
        self.rows = 1


class PoolSimulation:
    """One run in simulated time, step by step.

    Args:
        pool: What is simulated.
        arrivals: Sorted times, seconds.
        rng: Source of the jitter; may be left out when there is none.
    """

    def __init__(self, pool: Pool, arrivals: Sequence[float], rng: random.Random | None = None) -> None:
        self.pool = pool
        self.score = Score()
        self.now = 0.0
        self._arrivals = arrivals
        self._arrived = 0
        self._rng = rng if rng is not None else random.Random(0)
        self._waiting: Waiting[_Request] = Waiting(pool.objective)
        self._free_at = [list(kind.busy) for kind in pool.kinds]
        self._running: list[tuple[float, Ended]] = []
        self._rate = ArrivalRate(RATE_OBJECTIVES * pool.objective)
        self._recent = ArrivalRate(RECENT_OBJECTIVES * pool.objective)
        self._useless_after = pool.useless_after
        self._quickest = pool.quickest
        self._ask_at = 0.0

    @property
    def arrived(self) -> int:
        """How many requests have come."""
        return self._arrived

    def branch(self, until: float, then: Sequence[float] = ()) -> PoolSimulation:
        """The same run from here on, apart from this one, in which nobody comes after ``until`` but those of ``then``.

        Args:
            until: Seconds.
            then: Sorted times after it, seconds.
        """
        other = copy.copy(self)
        known = self._arrivals[: max(self._arrived, bisect.bisect_right(self._arrivals, until))]
        other._arrivals = [*known, *then]
        other.score = Score()
        other._rng = copy.copy(self._rng)
        other._waiting = self._waiting.copy()
        other._free_at = [each.copy() for each in self._free_at]
        other._running = self._running.copy()
        other._rate = copy.copy(self._rate)
        other._recent = copy.copy(self._recent)
        return other

    def next_view(self) -> View | None:
        """Go on until a worker is free and something waits; None when all requests are answered or given up."""
        while True:
            self._arrive()
            self.score.dropped += len(self._waiting.sweep(self.now, self._quickest))
            free = min(map(min, self._free_at))
            if self._waiting and free <= self.now and self.now >= self._ask_at:
                return self._view()
            upcoming = self._arrivals[self._arrived] if self._arrived < len(self._arrivals) else None
            if not self._waiting:
                if upcoming is None:
                    return None
                self.now = upcoming
            elif free > self.now:
                self.now = free  # who arrives meanwhile changes nothing before a worker is free
            else:
                ends = (at for kind in self._free_at for at in kind if at > self.now)
                self.now = min(self._ask_at, math.inf if upcoming is None else upcoming, *ends)
                self._ask_at = self.now

    def apply(self, decision: Choice | None) -> float:
        """Do as the scheduler said; returns the utility that was earned."""
        self.score.decisions += 1
        if decision is None:
            self.score.waits += 1
            self._ask_at = self.now + PATIENCE * self.pool.objective
            return 0.0
        profile = self.pool.kinds[decision.kind].profiles[decision.variant]
        taken = self._waiting.take(self.now, decision.batch, profile.seconds_for)
        seconds = profile.seconds_for(len(taken))
        if self.pool.jitter:
            seconds *= self._rng.lognormvariate(0.0, self.pool.jitter)
        end = self.now + seconds
        workers = self._free_at[decision.kind]
        workers[workers.index(min(workers))] = end
        self._running.append((end, Ended(profile.name, len(taken), end - min(request.since for request in taken))))
        return self._earn(profile, taken, end)

    def ended(self) -> list[Ended]:
        """Runs that came to their end since the last call, in order."""
        done = sorted((item for item in self._running if item[0] <= self.now), key=operator.itemgetter(0))
        if done:
            self._running = [item for item in self._running if item[0] > self.now]
        return [run for _, run in done]

    def _earn(self, profile: Profile, taken: Sequence[_Request], end: float) -> float:
        score, pool = self.score, self.pool
        earned = 0.0
        for request in taken:
            delay = end - request.since
            earned += pool.utility.value(profile.accuracy, delay, pool.objective)
            score.in_time += delay <= pool.objective
            score.delays.append(delay)
        score.utility += earned
        score.answered += len(taken)
        score.rows[profile.name] = score.rows.get(profile.name, 0) + len(taken)
        return earned

    def _arrive(self) -> None:
        arrivals, waiting = self._arrivals, self._waiting
        while self._arrived < len(arrivals) and arrivals[self._arrived] <= self.now:
            at = arrivals[self._arrived]
            self._rate.add(at)
            self._recent.add(at)
            waiting.add(_Request(at, at + self._useless_after))
            self._arrived += 1

    def _view(self) -> View:
        pool = self.pool
        count, oldest, p90, median = self._waiting.ages(self.now)
        return View(
            kinds=tuple(
                WorkerKind(kind.profiles, tuple([max(0.0, at - self.now) for at in free_at]))
                for kind, free_at in zip(pool.kinds, self._free_at, strict=True)
            ),
            objective=pool.objective,
            utility=pool.utility,
            count=count,
            oldest=oldest,
            p90=p90,
            median=median,
            rate=self._rate.at(self.now),
            recent_rate=self._recent.at(self.now),
        )


def simulate(
    pool: Pool,
    arrivals: Sequence[float],
    scheduler: Scheduler,
    rng: random.Random | None = None,
    warm_up: float = 0.0,
) -> Score:
    """Let a scheduler serve these requests.

    Args:
        pool: What is simulated.
        arrivals: Sorted times, seconds.
        scheduler: Decides; a fresh one, if it remembers anything.
        rng: Source of the jitter.
        warm_up: Seconds at the start that are not counted.
    """
    run = PoolSimulation(pool, arrivals, rng)
    warm = warm_up <= 0.0
    while (view := run.next_view()) is not None:
        if not warm and run.now >= warm_up:
            warm, run.score = True, Score()
        for ended in run.ended():
            scheduler.ended(ended)
        run.apply(scheduler.decide(view))
    return run.score
