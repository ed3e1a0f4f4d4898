"""What priority classes mean: a job of a higher class goes before those of lower ones, whoever's they are.

Pure steps for all policies, as those of :mod:`.own_priority` are for one tenant's jobs:

* of those that wait for a node the ones of higher classes are looked at first, and room is kept for them first;
* of a node, and of each of its accelerators, the jobs of the highest class have what they can use, in the proportions
  of the policy, the next ones what is left, and so on; everybody keeps a floor;
* where a job of a class that preempts finds no room, jobs of lower classes are suspended: as little work is lost as
  possible, and no more of them stop than need be. A job that was promised a hard deadline is never one of them, and
  competes for CPU with the highest class of its node.

The names are those of Kubernetes (PriorityClass, value, preemption).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tiercel.broker.scheduling.allocate import FLOOR, Claim, divide
from tiercel.broker.scheduling.feasible import Room, can_hold
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.tiers import handing_over, is_promised
from tiercel.core.figures import percent
from tiercel.core.shares import Share

_HOPELESS = -math.inf


def by_class(waiting: Sequence[JobView]) -> Sequence[JobView]:
    """Jobs that wait for a node, those of higher classes first; others keep their places."""
    return sorted(waiting, key=lambda job: -job.priority_class.value) if _differ(waiting) else waiting


def with_classes(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with shares by class, and with the jobs that are suspended for those of higher ones."""
    if not _differ(snapshot.jobs):
        return plan
    jobs = {job.id: job for job in snapshot.jobs}
    nodes = {node.id: node for node in snapshot.nodes}
    by_node: dict[str, list[Assignment]] = {}
    for entry in plan.assignments:
        by_node.setdefault(entry.node_id, []).append(entry)
    shares: dict[str, Share] = {}
    for node_id, entries in by_node.items():
        there = [jobs[entry.job_id] for entry in entries]
        if _differ(there):
            levels = _levels(there, plan.unreachable, snapshot.now)
            shares.update(_shared(nodes[node_id], entries, jobs, levels))
    assignments = tuple(
        replace(entry, share=shares[entry.job_id]) if entry.job_id in shares else entry for entry in plan.assignments
    )
    plan = replace(plan, assignments=assignments)
    stop_for = dict(_suspended(plan, snapshot))
    if not stop_for:
        return plan
    waiting = dict(plan.waiting)
    for name in set(stop_for.values()):
        count = sum(each == name for each in stop_for.values())
        waiting[name] += f"; {count} of lower classes {'is' if count == 1 else 'are'} suspended for it"
    suspended = {
        name: f"suspended for job {other} of class {jobs[other].priority_class.name}"
        for name, other in stop_for.items()
    }
    return replace(plan, waiting=waiting, suspended=suspended)


# --- Shares -----------------------------------------------------------------------------------------------------------


def _shared(
    node: NodeView, entries: Sequence[Assignment], jobs: Mapping[str, JobView], levels: Mapping[str, float]
) -> dict[str, Share]:
    """The shares of a node that differ from the policy's."""
    given = {entry.job_id: entry.share for entry in entries}
    widths = {name: jobs[name].resources.cpu_cores / node.cpu_cores for name in given}
    weights = _by_level({name: share.cpu_weight for name, share in given.items()}, levels, widths)
    fractions: dict[str, dict[str, float]] = {}
    for device in sorted({each.id for share in given.values() for each in share.accelerators}):
        there = {
            name: each.fraction for name, share in given.items() for each in share.accelerators if each.id == device
        }
        fractions[device] = _by_level(there, levels, dict.fromkeys(there, 1.0))
    changed = {}
    for name, share in given.items():
        devices = tuple(replace(each, fraction=fractions[each.id][name]) for each in share.accelerators)
        own = replace(share, cpu_weight=weights[name], accelerators=devices)
        if not own.same_limits(share):
            changed[name] = own if levels[name] == _HOPELESS else replace(own, reason=_reason(jobs[name], own, levels))
    return changed


def _levels(there: Sequence[JobView], hopeless: Mapping[str, str], now: float) -> dict[str, float]:
    """The value of each job's class; promised deadlines and models on their way go first in any, the hopeless last."""
    top = max(job.priority_class.value for job in there)
    levels: dict[str, float] = {}
    for job in there:
        if is_promised(job) or handing_over(job, now) is not None:
            levels[job.id] = top
        else:
            levels[job.id] = _HOPELESS if job.id in hopeless else job.priority_class.value
    return levels


def _by_level(given: Mapping[str, float], levels: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """What has been given to all, given to the highest level first, each within what it can use; all keep a floor."""
    capacity = math.fsum(given.values())
    floor = min(FLOOR * capacity / len(given), *given.values())
    left, shares = capacity - floor * len(given), {}
    for level in sorted({levels[name] for name in given}, reverse=True):
        claims = {
            name: Claim(weight, 0.0, max(most[name] - floor, 0.0))
            for name, weight in sorted(given.items())
            if levels[name] == level
        }
        parts = divide(claims, left)
        shares.update({name: floor + part for name, part in parts.items()})
        left = max(left - math.fsum(parts.values()), 0.0)
    # What nobody can use stays in proportion, so that all of it is given.
    scale = capacity / math.fsum(shares.values())
    return {name: share * scale for name, share in shares.items()}


def _reason(job: JobView, share: Share, levels: Mapping[str, float]) -> str:
    own = levels[job.id]
    before, behind = (sum(sign * level > sign * own for level in levels.values()) for sign in (1, -1))
    what = f"class {job.priority_class.name}" if job.priority_class.name else "without a class"
    if before:
        part = percent(share.cpu_weight)
        first = "1 job of a higher class goes" if before == 1 else f"{before} jobs of higher classes go"
        return f"{what}: {first} first on this node; it has {part} of it till then"
    last = "1 job of a lower class" if behind == 1 else f"{behind} jobs of lower classes"
    return f"{what}: it goes before {last}, with {percent(share.cpu_weight)} of the node"


# --- Preemption -------------------------------------------------------------------------------------------------------


def _suspended(plan: Plan, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """The jobs that are suspended, each with the one for which it is."""
    wanting = [job for job in snapshot.jobs if job.id in plan.waiting and job.movable and job.priority_class.preempts]
    if not wanting:
        return
    there = _jobs_there(plan, snapshot)
    for job in sorted(wanting, key=lambda job: (-job.priority_class.value, job.submitted_at, job.id)):
        nodes = [node for node in snapshot.nodes if can_hold(node, job)]
        chosen = min(_choices(job, nodes, there, snapshot), default=None)
        if chosen is not None:
            yield from ((name, job.id) for name in chosen.victims)
            stay = [each for each in there[chosen.node_id] if each.id not in chosen.victims]
            there[chosen.node_id] = [*stay, job]


class _Choice(NamedTuple):
    """Whom to suspend for a job; the smallest is best."""

    highest: float  # class among them
    lost: float  # CPU seconds of work
    stopping: int
    node_id: str
    victims: tuple[str, ...]


def _choices(
    job: JobView, nodes: Iterable[NodeView], there: Mapping[str, Sequence[JobView]], snapshot: Snapshot
) -> Iterator[_Choice]:
    """On each node that can, whom to suspend for a job: nobody where it has room already."""
    for node in nodes:
        if _has_room(there[node.id], node, job):
            yield _Choice(_HOPELESS, 0.0, 0, node.id, ())
            continue
        lost = {
            each.id: snapshot.restart_seconds(each, node.id) * each.resources.cpu_cores
            for each in there[node.id]
            if each.migratable and each.priority_class.value < job.priority_class.value and not is_promised(each)
        }
        by_loss = sorted(
            (each for each in there[node.id] if each.id in lost), key=lambda each: (lost[each.id], each.id)
        )
        victims = _fewest(job, node, there[node.id], sorted(by_loss, key=lambda each: each.priority_class.value))
        if victims:
            highest = max(each.priority_class.value for each in victims)
            names = tuple(each.id for each in victims)
            yield _Choice(highest, math.fsum(lost[name] for name in names), len(names), node.id, names)


def _fewest(job: JobView, node: NodeView, there: Sequence[JobView], in_order: Sequence[JobView]) -> list[JobView]:
    """Of those that may stop, taken in order, the ones that must; none where even all are not enough."""
    left, victims = list(there), []
    for each in in_order:
        if _has_room(left, node, job):
            break
        left.remove(each)
        victims.append(each)
    if not _has_room(left, node, job):
        return []
    for each in reversed(victims):  # who would be lost most stays if it can
        if _has_room([*left, each], node, job):
            left.append(each)
    return [each for each in victims if each not in left]


def _has_room(there: Sequence[JobView], node: NodeView, job: JobView) -> bool:
    return Room.beside(node, [each for each in there if not each.stopping]).has_room_for(job)


def _jobs_there(plan: Plan, snapshot: Snapshot) -> dict[str, list[JobView]]:
    """By node the jobs that are there or come, with what they hold."""
    jobs = {job.id: job for job in snapshot.jobs}
    there: dict[str, list[JobView]] = {node.id: [] for node in snapshot.nodes}
    for entry in plan.assignments:
        job = jobs[entry.job_id]
        comes = job.movable or job.node_id != entry.node_id
        held = replace(
            job, node_id=entry.node_id, share=entry.share, movable=False, migratable=not comes and job.migratable
        )
        there[entry.node_id].append(held)
    return there


def _differ(jobs: Iterable[JobView]) -> bool:
    return len({job.priority_class.value for job in jobs}) > 1
