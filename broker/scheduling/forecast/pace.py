"""How fast nodes are: a CPU second of one is not a CPU second of another.

Programs say it themselves: epochs per CPU second of the same program on two nodes, each run measured once, since runs
of one program differ by chance. What a program goes faster by than on its other nodes is its speed there; the mean over
programs is the node's, and what is held of a program that never ran there. Both are shrunk to "as fast as the others".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import Observation

# A run is measured by its first reports on a node, so many.
_REPORTS = 6
# An even guess counts as much as so many runs, and so many at most are remembered.
_GUESS, _RUNS = 4, 16
# Nodes that differ by less count as alike: runs of one program differ by as much, and so does who runs beside them.
_CHANCE = 0.1
# Programs remembered, those measured last.
_PROGRAMS = 256
# Epochs per CPU second; what lies outside of these is nothing that anybody could measure.
_LEAST, _MOST = 1e-12, 1e12


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a program went on a node."""

    log: float = 0.0  # mean logarithm of its epochs per CPU second; older runs are forgotten slowly
    runs: int = 0  # that this rests on; bounded

    def with_run(self, log: float) -> Pace:
        """The pace once another run was measured."""
        runs = min(self.runs + 1, _RUNS)
        return Pace(self.log + (log - self.log) / runs, runs)


@dataclass(frozen=True, slots=True)
class Paces:
    """How fast a program went on the nodes that it ran on."""

    on: Mapping[str, Pace]  # by node
    mean: float  # of their logarithms

    @classmethod
    def of(cls, on: Mapping[str, Pace]) -> Paces:
        """The paces by node with their mean."""
        return cls(on, math.fsum(pace.log for pace in on.values()) / max(len(on), 1))

    def deviation(self, node_id: str) -> float:
        """By how much its pace on a node differs from that on all of its nodes, as a logarithm."""
        return self.on[node_id].log - self.mean


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast nodes are, as far as it was measured."""

    programs: Mapping[str, Paces] = field(default_factory=dict)  # by program, the one measured last at the end; bounded
    nodes: Mapping[str, float] = field(default_factory=dict)  # by node, logarithm of its speed, shrunk to 0

    def of(self, program: str, node_id: str) -> float:
        """Work that a CPU second of a node does for a program, in CPU seconds of the nodes in the mean."""
        paces, log = self.programs.get(program), self.nodes.get(node_id, 0.0)
        if paces is not None and node_id in paces.on:
            runs = paces.on[node_id].runs if len(paces.on) > 1 else 0
            log = (paces.deviation(node_id) * runs + log * _GUESS) / (runs + _GUESS)
        return math.exp(log) if abs(log) > _CHANCE else 1.0

    def after(self, news: Iterable[tuple[JobView | None, JobView]], nodes: Iterable[str]) -> Speeds:
        """What is known once jobs told more.

        Args:
            news: Jobs that have news, each as it was seen before (None where it was not) and as it is now.
            nodes: All nodes that there are; others are forgotten.
        """
        measured = [
            (job.workload, job.node_id, log) for before, job in news if (log := _log_pace(before, job)) is not None
        ]
        present = frozenset(nodes)
        if not measured and self.nodes.keys() <= present:
            return self
        programs = dict(self.programs)
        for program, node_id, log in measured:
            known = programs.pop(program, Paces({}, 0.0)).on
            programs[program] = Paces({**known, node_id: known.get(node_id, Pace()).with_run(log)}, 0.0)
        kept = {
            program: Paces.of({name: pace for name, pace in paces.on.items() if name in present})
            for program, paces in list(programs.items())[-_PROGRAMS:]
        }
        return Speeds(kept, _speeds_of_nodes(kept.values()))


def _speeds_of_nodes(programs: Iterable[Paces]) -> dict[str, float]:
    sums: dict[str, tuple[float, int]] = {}
    for paces in programs:
        for node_id, pace in paces.on.items() if len(paces.on) > 1 else ():
            total, runs = sums.get(node_id, (0.0, 0))
            sums[node_id] = (total + pace.runs * paces.deviation(node_id), runs + pace.runs)
    return {node_id: total / (runs + _GUESS) for node_id, (total, runs) in sums.items()}


def _log_pace(before: JobView | None, job: JobView) -> float | None:
    """A run's pace once it has told enough of itself where it runs; None else, and where accelerators set its pace."""
    if job.movable or not job.node_id or not job.workload or job.resources.accelerators:
        return None
    seen = _reports_there(job)
    if len(seen) < _REPORTS or (before is not None and len(_reports_there(before)) >= _REPORTS):
        return None
    epochs, spent = seen[-1].epoch - seen[0].epoch, seen[-1].cpu_seconds - seen[0].cpu_seconds
    return math.log(epochs / spent) if epochs > 0 and spent > 0 and _LEAST < epochs / spent < _MOST else None


def _reports_there(job: JobView) -> Sequence[Observation]:
    """The first reports of a job on the node that runs it."""
    if job.migrated_at is None:
        return job.observations[:_REPORTS]
    return [each for each in job.observations if each.at > job.migrated_at][:_REPORTS]
