"""What the priority of a job means: it changes places with other jobs of its tenant, and with nobody else's.

One pure step for all policies. Whatever a policy gives to jobs of one tenant that can use as many cores on a node is
handed out among these by their priorities, the largest share to the highest; equal ones keep the policy's order. In the
same way like jobs change places in the line of those that wait for a node. So in both steps the job of every other
tenant has what it would have without any priority, and asking for more gains nothing over others.

Jobs that use accelerators keep what the policy gave them, as devices cannot be handed from run to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from tiercel.broker.scheduling.interface import Assignment, JobView, Plan, Snapshot


def with_own_priorities(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with the shares of each tenant's jobs in the order of their priorities."""
    jobs = {job.id: job for job in snapshot.jobs if not job.resources.accelerators}
    if not _differ(jobs.values()):
        return plan
    groups: dict[Hashable, list[Assignment]] = defaultdict(list)
    for assignment in plan.assignments:
        if (job := jobs.get(assignment.job_id)) is not None:
            groups[job.tenant, assignment.node_id, job.resources.cpu_cores].append(assignment)
    changed: dict[str, Assignment] = {}
    for group in groups.values():
        if _differ(jobs[each.job_id] for each in group):
            changed.update(_handed_out(group, jobs))
    return replace(plan, assignments=tuple(changed.get(each.job_id, each) for each in plan.assignments))


def in_own_order(waiting: Sequence[JobView]) -> Sequence[JobView]:
    """Jobs that wait for a node, each tenant's like ones in the order of their priorities; others keep their places."""
    if not _differ(waiting):
        return waiting
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, job in enumerate(waiting):
        places[_kind(job)].append(place)
    line = list(waiting)
    for own in places.values():
        for place, job in zip(own, sorted((waiting[place] for place in own), key=_first), strict=True):
            line[place] = job
    return line


def _handed_out(group: Sequence[Assignment], jobs: dict[str, JobView]) -> dict[str, Assignment]:
    by_size = sorted(group, key=lambda each: -each.share.cpu_weight)
    by_priority = sorted(by_size, key=lambda each: -jobs[each.job_id].priority)
    changed: dict[str, Assignment] = {}
    for own, given in zip(by_priority, by_size, strict=True):
        if own is given or own.share.same_limits(given.share):
            continue
        words = (
            f"priority {jobs[own.job_id].priority} among its tenant's jobs: it has what the policy gave {given.job_id}"
        )
        share = replace(own.share, cpu_weight=given.share.cpu_weight, cpu_cap_cores=given.share.cpu_cap_cores)
        changed[own.job_id] = replace(own, share=replace(share, speed=given.share.speed, reason=words))
    return changed


def _differ(jobs: Iterable[JobView]) -> bool:
    found = {job.priority for job in jobs}
    return len(found) > 1


def _first(job: JobView) -> int:
    return -job.priority


def _kind(job: JobView) -> Hashable:
    """What jobs must have in common so that it makes no difference to anybody else which of them goes first."""
    needs = job.resources, job.runtime, job.image, job.home, job.data, job.node_labels
    return job.tenant, job.node_id, *needs
