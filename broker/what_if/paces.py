"""The pace of each node: how many times the CPU seconds of earlier runs the runs there need lately.

Neighbours, another machine and a cold cache make reports dearer for all. A run tells that by its own reports, each
against the earlier runs of its own program; what those that have reported tell is held of those that have not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.forecast.work import past_curves
from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.what_if.progress import AS_BEFORE, FULL_TRUST, Pace, best_reports, pace_of

MOST_RUNS = 128
"""The pace of so many runs is remembered; of more the latest."""

# "Here all is as it was for earlier runs" counts as much as so many runs whose reports say something else.
_GUESS_RUNS = 1.0


@dataclass(frozen=True, slots=True)
class Paces:
    """The pace of the latest runs, by job: its node, and what it needed there; who told something last is last."""

    seen: Mapping[str, tuple[str, Pace]] = field(default_factory=dict)

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
        """What is known at a later look."""
        seen = dict(self.seen)
        for job in snapshot.jobs:
            if not job.node_id or not job.observations or (job.id in seen and seen[job.id][1].trust >= FULL_TRUST):
                continue
            pace = _pace(job, snapshot)
            # One that tells nothing new may have gone to another node since.
            if pace is not None and (job.id not in seen or seen[job.id][1] != pace):
                seen.pop(job.id, None)
                seen[job.id] = job.node_id, pace
        return Paces(dict(itertools.islice(seen.items(), max(len(seen) - MOST_RUNS, 0), None)))


def _pace(job: JobView, snapshot: Snapshot) -> Pace | None:
    own, past = best_reports(job), snapshot.history.get(job.workload, ())
    # Of a program that is only like it: what differs may be the program.
    return pace_of(past_curves(past, job.direction), own) if own and past else None
