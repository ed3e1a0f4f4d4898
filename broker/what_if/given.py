"""How much of a node its runs get: other programs of the machine take CPU as well, and nobody tells of them.

What the runs of a node used together from one look to the next, against what it has for them. Taken together, since
shares change; only while the same runs are there, since of one that came or went nobody knows when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot

# What was seen counts half after so many seconds: other programs come and go within minutes.
_HALF_SECONDS = 30.0
# "All that a node has" counts as much as so many CPU seconds that were seen.
_GUESS_CPU_SECONDS = 2.0
# A node that gave nothing for a while will not give nothing for ever.
_LEAST = 0.05
# Between two looks further apart, too much may have happened.
_MOST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Given:
    """What was seen of each node."""

    got: Mapping[str, float] = field(default_factory=dict)  # CPU seconds of its runs, older ones counting less; by node
    meant: Mapping[str, float] = field(default_factory=dict)  # what it would have given them by itself, likewise

    def part_of(self, node_id: str) -> float:
        """The part of its cores that a node gives its runs, in (0, 1]."""
        part = (self.got.get(node_id, 0.0) + _GUESS_CPU_SECONDS) / (self.meant.get(node_id, 0.0) + _GUESS_CPU_SECONDS)
        return min(max(part, _LEAST), 1.0)

    def after(self, before: Snapshot, now: Snapshot) -> Given:
        """What is known at a later look."""
        seconds = now.now - before.now
        if not 0 < seconds <= _MOST_SECONDS:
            return self
        kept = math.pow(0.5, seconds / _HALF_SECONDS)
        got: dict[str, float] = {}
        meant: dict[str, float] = {}
        for node in now.nodes:
            used = _used(_runs(before, node.id), _runs(now, node.id))
            new = (0.0, 0.0) if used is None else (used, seconds * _cores(node, now))
            got[node.id] = kept * self.got.get(node.id, 0.0) + new[0]
            meant[node.id] = kept * self.meant.get(node.id, 0.0) + new[1]
        return Given(got, meant)


def _runs(snapshot: Snapshot, node_id: str) -> dict[str, JobView]:
    return {job.id: job for job in snapshot.jobs if job.node_id == node_id and not job.movable}


def _used(before: Mapping[str, JobView], now: Mapping[str, JobView]) -> float | None:
    """CPU seconds that runs used together; None where others ran, or where accelerators set their pace."""
    if not now or before.keys() != now.keys() or any(job.resources.accelerators for job in now.values()):
        return None
    used = [job.cpu_seconds - before[job_id].cpu_seconds for job_id, job in now.items()]
    return math.fsum(used) if all(0 <= each < math.inf for each in used) else None


def _cores(node: NodeView, snapshot: Snapshot) -> float:
    """What a node gives its runs if nothing else is there but the endpoints that it answers for."""
    answering = math.fsum(each.cpu_cores_used for each in snapshot.endpoints if each.node_id == node.id)
    wanted = math.fsum(map(_ceiling, _runs(snapshot, node.id).values()))
    return min(wanted, max(node.cpu_cores - answering, node.cpu_cores / 10))


def _ceiling(job: JobView) -> float:
    cap = job.share.cpu_cap_cores if job.share is not None else None
    return job.resources.cpu_cores if cap is None else min(job.resources.cpu_cores, cap)
