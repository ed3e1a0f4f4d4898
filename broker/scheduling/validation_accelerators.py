"""The part of the safety net about accelerators: what is wrong with a plan's accelerators, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiercel.broker.scheduling.accelerators import held_by
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare

TOLERANCE = 1e-9


def accelerator_problems(plan: Plan, jobs: Mapping[str, JobView], nodes: Mapping[str, NodeView]) -> Iterator[str]:
    """Find what makes a plan's accelerators unfit.

    A job that stays where it runs must keep exactly what it holds, as large as that may be and whatever became of the
    accelerator; one that comes to a node must get as many as it asks for, in good order and with room for it.

    Args:
        plan: The plan.
        jobs: Of the snapshot, by id.
        nodes: Of the snapshot, by id.

    Yields:
        A sentence for each problem.
    """
    promises: dict[tuple[str, str], _Promised] = {}
    for entry in plan.assignments:
        job, node = jobs.get(entry.job_id), nodes.get(entry.node_id)
        if job is None or node is None:
            continue
        if not (entry.share.accelerators or job.resources.accelerators):
            continue
        stays = not job.movable and job.node_id == entry.node_id
        yield from _bad_fractions(entry)
        yield from _bad_stay(entry, job) if stays else _bad_arrival(entry, job, node)
        for share in entry.share.accelerators:
            promises.setdefault((entry.node_id, share.id), _Promised()).add(share, job, comes=not stays)
    for (node_id, accelerator_id), promised in promises.items():
        view = next((view for view in nodes[node_id].accelerators if view.id == accelerator_id), None)
        yield from _bad_sums(promised, view, f"accelerator {accelerator_id} of node {node_id}")


def _bad_fractions(entry: Assignment) -> Iterator[str]:
    for share in entry.share.accelerators:
        if not (math.isfinite(share.fraction) and 0 < share.fraction <= 1 + TOLERANCE):
            yield f"job {entry.job_id} has the fraction {share.fraction} of accelerator {share.id}, not one in (0, 1]"
        if share.cap is not None and not 0 < share.cap <= 1 + TOLERANCE:
            yield f"job {entry.job_id} has a cap of {share.cap} on accelerator {share.id}, not one in (0, 1]"


def _bad_stay(entry: Assignment, job: JobView) -> Iterator[str]:
    if _without_fractions(entry.share.accelerators) != _without_fractions(held_by(job)):
        yield f"job {job.id} runs and cannot change its accelerators, but the plan gives it others than it holds"


def _bad_arrival(entry: Assignment, job: JobView, node: NodeView) -> Iterator[str]:
    given, wanted = entry.share.accelerators, job.resources
    if len({share.id for share in given}) != len(given):
        yield f"job {job.id} is given an accelerator twice"
    if len(given) != wanted.accelerators:
        yield f"job {job.id} asks for {wanted.accelerators} accelerators and is given {len(given)}"
    views = {view.id: view for view in node.accelerators}
    for share in given:
        view = views.get(share.id)
        if view is None:
            yield f"job {job.id} is given accelerator {share.id}, which node {node.id} does not have"
            continue
        if view.problem:
            yield f"job {job.id} is given accelerator {share.id} of node {node.id}, out of order: {view.problem}"
        asked = wanted.accelerator_memory_bytes or view.memory_bytes
        if share.memory_bytes != asked:
            yield f"job {job.id} asks for {asked} bytes of accelerator {share.id} and is given {share.memory_bytes}"


def _without_fractions(shares: tuple[AcceleratorShare, ...]) -> list[tuple[str, int]]:
    return [(share.id, share.memory_bytes) for share in shares]


@dataclass(slots=True)
class _Promised:
    """What a plan promises of an accelerator; local to one check."""

    fractions: float = 0.0
    memory_bytes: int = 0
    jobs: int = 0
    wholes: int = 0
    comes: bool = False

    def add(self, share: AcceleratorShare, job: JobView, *, comes: bool) -> None:
        self.fractions += share.fraction
        self.memory_bytes += share.memory_bytes
        self.jobs += 1
        self.wholes += not job.resources.accelerator_memory_bytes
        self.comes = self.comes or comes


def _bad_sums(promised: _Promised, view: Accelerator | None, where: str) -> Iterator[str]:
    if not promised.fractions <= 1 + TOLERANCE:
        yield f"the fractions of {where} add up to {promised.fractions:.6g}, more than 1"
    if not promised.comes or view is None:
        return
    if promised.memory_bytes > view.memory_bytes:
        yield f"{where} has {view.memory_bytes} bytes of memory, and its jobs were promised {promised.memory_bytes}"
    if promised.wholes and promised.jobs > 1:
        yield f"{where} was promised to a job alone, and to {promised.jobs - 1} others"
