"""Works out how the runs of a node shall pace themselves on its accelerators, from what they use of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.accelerator_time import (
    WANTS_ALL,
    AcceleratorClaim,
    active_limits,
    demand_of,
    turns_of,
)

_SHORTEST_WINDOW_SECONDS: Final = 1.8
_LONGEST_WINDOW_SECONDS: Final = 6.0
# A run with long steps, or long rests between them, says less often what it used: the window then is longer.
_FEWEST: Final = 3
_ENOUGH: Final = 5
_SAMPLES: Final = 16
# Limits closer to each other than this are the same.
_SAME: Final = 0.02
_NO_LIMIT_FROM: Final = 0.99
_DIGITS: Final = 3


@dataclass(slots=True)
class _RunUse:
    """What is known of one run."""

    limit: float = 1.0  # fraction of time that its work may be on its accelerators; 1 for no limit
    active: float = 1.0  # what that was, when it was last measured under one limit
    demand: float = WANTS_ALL  # what it could use of an accelerator, as concluded from that
    # Times, and accelerator time so far, since the limit is what it is.
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def measure(self) -> bool:
        """Take a new measurement, if there is enough to measure; whether there was."""
        if len(self.samples) < _FEWEST or self.samples[-1][0] - self.samples[0][0] < _SHORTEST_WINDOW_SECONDS:
            return False
        (began, before), (ended, after) = self.samples[0], self.samples[-1]
        self.active = min(max(after - before, 0.0) / (ended - began), 1.0)
        return True


class AcceleratorPaces:
    """Lends what some leave unused to others, and takes it back when they want it. Has no clock of its own.

    A run of which nothing has been heard yet is taken to want all that it can get, and so is one that is heard of no
    more: what it wanted last counts on.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _RunUse] = {}

    def note(self, run_id: str, at: float, busy_seconds: float) -> None:
        """Take in what a run has used.

        Args:
            run_id: The run.
            at: When it said so; seconds of any origin.
            busy_seconds: Accelerator time so far, of the accelerator that it kept busy longest.
        """
        samples = self._runs.setdefault(run_id, _RunUse()).samples
        samples.append((at, busy_seconds))
        while at - samples[0][0] > _LONGEST_WINDOW_SECONDS and len(samples) > _ENOUGH:
            samples.popleft()

    def paces(self, shares: Mapping[str, Sequence[AcceleratorShare]]) -> dict[str, float]:
        """How the runs shall pace themselves from now on.

        Args:
            shares: What each living run holds; other runs are forgotten.

        Returns:
            Fraction of time that each one's work may be on its accelerators, 0 for no limit; the least over its
            accelerators.
        """
        self._runs = {run_id: self._runs.get(run_id, _RunUse()) for run_id, held in shares.items() if held}
        by_accelerator: defaultdict[str, dict[str, AcceleratorShare]] = defaultdict(dict)
        for run_id in self._runs:
            for share in shares[run_id]:
                by_accelerator[share.id][run_id] = share
        self._conclude(by_accelerator)
        limits = dict.fromkeys(self._runs, 1.0)
        for held in by_accelerator.values():
            claims = {run_id: _claim(share, self._runs[run_id].demand) for run_id, share in held.items()}
            for run_id, limit in active_limits(claims).items():
                limits[run_id] = min(limits[run_id], limit, _cap_of(held[run_id]))
        for run_id, limit in limits.items():
            self._hold(self._runs[run_id], limit)
        return {
            run_id: 0.0 if run.limit >= _NO_LIMIT_FROM else round(run.limit, _DIGITS)
            for run_id, run in self._runs.items()
        }

    def _conclude(self, by_accelerator: Mapping[str, Mapping[str, AcceleratorShare]]) -> None:
        """What each run could use, where something new was measured; the accelerator with most others counts."""
        measured = [run_id for run_id, run in self._runs.items() if run.measure()]
        for run_id in measured:
            run = self._runs[run_id]
            neighbours = [
                [self._runs[other].active for other in holders if other != run_id]
                for holders in by_accelerator.values()
                if run_id in holders
            ]
            run.demand = demand_of(run.active, run.limit, min(map(turns_of, neighbours)))

    @staticmethod
    def _hold(run: _RunUse, limit: float) -> None:
        """Let a limit hold; what was measured under another one says nothing about this one."""
        if abs(limit - run.limit) > _SAME or (limit == 1.0 and run.limit < 1.0):
            run.limit = limit
            run.samples.clear()


def _cap_of(share: AcceleratorShare) -> float:
    return 1.0 if share.cap is None else share.cap


def _claim(share: AcceleratorShare, demand: float) -> AcceleratorClaim:
    """What a run asks of an accelerator: what its cap does not let it use is others'."""
    cap = _cap_of(share)
    return AcceleratorClaim(min(share.fraction, cap), min(demand, cap))
