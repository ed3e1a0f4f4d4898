"""How much of a node its runs get: other programs of the machine take CPU as well, and nobody tells of them.

What the runs of a node used together from one look to the next, against what it has for them. Taken together, since
shares change; only while the same runs are there, since of one that came or went nobody knows when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import JobView, Snapshot

# What was seen counts half after so many seconds: other programs come and go within minutes.
_HALF_SECONDS = 30.0
# "All that a node has" counts as much as so many CPU seconds that were seen.
_GUESS_CPU_SECONDS = 2.0
# A node that gave nothing for a while will not give nothing for ever.
_LEAST = 0.05
# Between two looks nearer to each other, counters have hardly moved; further apart, too much may have happened.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Given:
    """What was seen of each node."""

    got: Mapping[str, float] = field(default_factory=dict)  # CPU seconds of its runs, older ones counting less; by node
    meant: Mapping[str, float] = field(default_factory=dict)  # what it would have given them by itself, likewise
    seen: Snapshot | None = None  # at the last look

    def part_of(self, node_id: str) -> float:
        """The part of its cores that a node gives its runs, in (0, 1], in hundredths."""
        part = (self.got.get(node_id, 0.0) + _GUESS_CPU_SECONDS) / (self.meant.get(node_id, 0.0) + _GUESS_CPU_SECONDS)
        return round(min(max(part, _LEAST), 1.0), 2)

    def parts(self) -> dict[str, float]:
        """Those of all nodes that do not give their runs everything; see :attr:`.Snapshot.given`."""
        return {node_id: part for node_id in self.got if (part := self.part_of(node_id)) < 1.0}

    def after(self, now: Snapshot) -> Given:
        """What is known after a look; looks that follow at once on the last one are left out."""
        before = self.seen
        seconds = math.inf if before is None else now.now - before.now
        if 0 <= seconds < _LEAST_SECONDS:
            return self
        if before is None or not 0 < seconds <= _MOST_SECONDS:
            return Given(self.got, self.meant, now)
        kept = math.pow(0.5, seconds / _HALF_SECONDS)
        earlier, later = _runs(before), _runs(now)
        answering: dict[str, float] = {}
        for each in now.endpoints:
            answering[each.node_id] = answering.get(each.node_id, 0.0) + each.cpu_cores_used
        got: dict[str, float] = {}
        meant: dict[str, float] = {}
        for node in now.nodes:
            runs = later.get(node.id, {})
            used = _used(earlier.get(node.id, {}), runs)
            left = max(node.cpu_cores - answering.get(node.id, 0.0), node.cpu_cores / 10)
            cores = min(math.fsum(map(_ceiling, runs.values())), left)
            got[node.id] = kept * self.got.get(node.id, 0.0) + (used or 0.0)
            meant[node.id] = kept * self.meant.get(node.id, 0.0) + (0.0 if used is None else seconds * cores)
        return Given(got, meant, now)


def _runs(snapshot: Snapshot) -> dict[str, dict[str, JobView]]:
    runs: dict[str, dict[str, JobView]] = {}
    for job in snapshot.jobs:
        if job.node_id and not job.movable:
            runs.setdefault(job.node_id, {})[job.id] = job
    return runs


def _used(before: Mapping[str, JobView], now: Mapping[str, JobView]) -> float | None:
    """CPU seconds that runs used together; None where others ran, or where accelerators set their pace."""
    if not now or before.keys() != now.keys() or any(job.resources.accelerators for job in now.values()):
        return None
    used = [job.cpu_seconds - before[job_id].cpu_seconds for job_id, job in now.items()]
    return math.fsum(used) if all(0 <= each < math.inf for each in used) else None


def _ceiling(job: JobView) -> float:
    cap = job.share.cpu_cap_cores if job.share is not None else None
    return job.resources.cpu_cores if cap is None else min(job.resources.cpu_cores, cap)
