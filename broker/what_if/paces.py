"""The pace of each node: how many times the CPU seconds of earlier runs the runs there need lately.

Neighbours, another machine and a cold cache make reports dearer for all. A run tells that by its own reports, each
against the earlier runs of its own program; what those that have reported tell is held of those that have not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.forecast.work import PastCurve, past_curves
from tiercel.broker.scheduling.interface import Snapshot
from tiercel.broker.what_if.progress import AS_BEFORE, FULL_TRUST, Pace, best_reports, pace_of
from tiercel.core.jobs import Direction

MOST_RUNS = 128
"""The pace of so many runs is remembered; of more the latest."""

# "Here all is as it was for earlier runs" counts as much as so many runs whose reports say something else.
_GUESS_RUNS = 1.0


@dataclass(frozen=True, slots=True)
class Paces:
    """The pace of the latest runs, by job: its node, and what it needed there; who told something last is last."""

    seen: Mapping[str, tuple[str, Pace]] = field(default_factory=dict)
    # CPU seconds to the last report that was looked at, of the jobs there are; infinite where no later one tells more.
    looked: Mapping[str, float] = field(default_factory=dict, compare=False)

    def beside(self, node_id: str) -> Pace:
        """The pace of the runs of a node, or of all runs for a job that is on none."""
        found = [pace for node, pace in self.seen.values() if node_id in {"", node}]
        if not found:
            return AS_BEFORE
        trust = math.fsum(pace.trust for pace in found)
        return Pace(
            math.fsum(pace.start for pace in found) / (len(found) + _GUESS_RUNS),
            math.fsum(pace.trust * pace.step for pace in found) / (trust + _GUESS_RUNS),
            trust / (trust + _GUESS_RUNS),
        )

    def after(self, snapshot: Snapshot) -> Paces:
        """What is known at a later look; only runs that have reported since are worked out."""
        seen, looked = dict(self.seen), dict[str, float]()
        curves: dict[tuple[str, Direction], tuple[PastCurve, ...]] = {}
        for job in snapshot.jobs:
            if not job.node_id or not job.observations:
                continue
            last, before = job.observations[-1].cpu_seconds, self.looked.get(job.id, 0.0)
            looked[job.id] = max(last, before)
            if before >= last:
                continue
            program = job.workload, job.direction
            if program not in curves:  # not of one that is only like it: what differs may be the program
                curves[program] = past_curves(snapshot.history.get(job.workload, ()), job.direction)
            pace = pace_of(curves[program], best_reports(job))
            if pace is None:
                continue
            if pace.trust >= FULL_TRUST:  # no later report tells more
                looked[job.id] = math.inf
            # One that tells nothing new may have gone to another node since.
            if job.id not in seen or seen[job.id][1] != pace:
                seen.pop(job.id, None)
                seen[job.id] = job.node_id, pace
        return Paces(dict(itertools.islice(seen.items(), max(len(seen) - MOST_RUNS, 0), None)), looked)
