"""A safety net under every policy: what is wrong with a plan, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tiercel.broker.scheduling.feasible import can_hold
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.validation_accelerators import accelerator_problems
from tiercel.core.shares import Share

TOLERANCE = 1e-9


def check_plan(plan: Plan, snapshot: Snapshot) -> list[str]:
    """Find what makes a plan unfit to be carried out.

    Memory that jobs which cannot be moved promise beyond their node is not the plan's fault and not reported; what they
    hold of its accelerators is not either.

    Returns:
        One sentence a problem; empty when the plan is sound.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    nodes = {node.id: node for node in snapshot.nodes}
    held = {node.id: _Held() for node in snapshot.nodes}
    for assignment in plan.assignments:
        if assignment.node_id in held and assignment.job_id in jobs:
            held[assignment.node_id].add(assignment, jobs[assignment.job_id])
    for endpoint in snapshot.endpoints:
        share = plan.endpoint_shares.get(endpoint.name)
        if share is not None and endpoint.node_id in held:
            held[endpoint.node_id].weights += share.cpu_weight
    return [
        *_unknown(plan, jobs, nodes),
        *_contradictions(plan, jobs),
        *_bad_shares(plan, frozenset(endpoint.name for endpoint in snapshot.endpoints)),
        *(problem for entry in plan.assignments for problem in _bad_places(entry, jobs, nodes)),
        *(problem for node in snapshot.nodes for problem in _bad_sums(held[node.id], node)),
        *accelerator_problems(plan, jobs, nodes),
    ]


def _unknown(plan: Plan, jobs: dict[str, JobView], nodes: dict[str, NodeView]) -> Iterator[str]:
    for assignment in plan.assignments:
        if assignment.job_id not in jobs:
            yield f"job {assignment.job_id} has an assignment but is not in the snapshot"
        if assignment.node_id not in nodes:
            yield f"job {assignment.job_id} is assigned to node {assignment.node_id}, which is not online"
    for kind, names in (("waiting", plan.waiting), ("unreachable", plan.unreachable)):
        for job_id in names:
            if job_id not in jobs:
                yield f"job {job_id} is {kind} but is not in the snapshot"


def _contradictions(plan: Plan, jobs: dict[str, JobView]) -> Iterator[str]:
    counts = Counter(assignment.job_id for assignment in plan.assignments)
    for job_id, count in counts.items():
        if count > 1:
            yield f"job {job_id} has {count} assignments"
        if job_id in plan.waiting:
            yield f"job {job_id} both waits and has an assignment"
    for job_id in plan.suspended:
        if job_id not in jobs or not jobs[job_id].migratable:
            yield f"job {job_id} is suspended but may not be"
    for job in jobs.values():
        if job.movable and job.id not in counts and job.id not in plan.waiting:
            yield f"job {job.id} neither has an assignment nor a reason to wait"


def _bad_shares(plan: Plan, endpoints: frozenset[str]) -> Iterator[str]:
    for assignment in plan.assignments:
        for problem in _bad_share(assignment.share):
            yield f"job {assignment.job_id} has {problem}"
    for name, share in plan.endpoint_shares.items():
        if name not in endpoints:
            yield f"endpoint {name} has a share but is not in the snapshot"
        for problem in _bad_share(share):
            yield f"endpoint {name} has {problem}"
    for kind, sentences in (("waiting", plan.waiting), ("unreachable", plan.unreachable)):
        for job_id, sentence in sentences.items():
            if not sentence:
                yield f"job {job_id} is {kind} without a reason"


def _bad_share(share: Share) -> Iterator[str]:
    if not 0 < share.cpu_weight <= 1 + TOLERANCE:
        yield f"the weight {share.cpu_weight}, which is not in (0, 1]"
    cap = share.cpu_cap_cores
    if cap is not None and not (cap > 0 and math.isfinite(cap)):
        yield f"a cap of {cap} cores, which lets it do nothing"
    if not share.reason:
        yield "a share without a reason"


def _bad_places(assignment: Assignment, jobs: dict[str, JobView], nodes: dict[str, NodeView]) -> Iterator[str]:
    job, node = jobs.get(assignment.job_id), nodes.get(assignment.node_id)
    if job is None or node is None:
        return
    migrates = not job.movable and job.node_id != node.id
    if migrates and not job.migratable:
        yield f"job {job.id} may not be moved but goes from {job.node_id or 'nowhere'} to {node.id}"
    if (job.movable or migrates) and not can_hold(node, job):
        yield f"job {job.id} goes to node {node.id}, which cannot run it"


@dataclass(slots=True)
class _Held:
    """What a plan promises of one node; local to one call of :func:`check_plan`."""

    weights: float = 0.0
    memory_bytes: int = 0
    added_bytes: int = 0

    def add(self, assignment: Assignment, job: JobView) -> None:
        self.weights += assignment.share.cpu_weight
        self.memory_bytes += job.resources.memory_bytes
        # A job that stays is not the plan's doing; one that comes to the node is.
        if job.movable or job.node_id != assignment.node_id:
            self.added_bytes += job.resources.memory_bytes


def _bad_sums(held: _Held, node: NodeView) -> Iterator[str]:
    if not held.weights <= 1 + TOLERANCE:
        yield f"the weights on node {node.id} add up to {held.weights:.6g}, more than 1"
    if held.added_bytes and held.memory_bytes > node.memory_bytes:
        yield f"node {node.id} has {node.memory_bytes} bytes of memory, and its jobs were promised {held.memory_bytes}"
