"""Accelerators in a plan whose policy knows nothing of them: one pure step after the policy, live and simulated.

What a policy says about CPU is a statement of how much each job matters. So the jobs on a device get fractions of its
time in proportion to their CPU weights, each at least a small floor. A policy that decides about devices itself fills
the fractions in, and what it filled in stands.

Costs nothing where no job uses accelerators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiercel.broker.scheduling.allocation import Claim, divide
from tiercel.broker.scheduling.devices import Grant, grants, names_of
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.placement import by_submission
from tiercel.core.shares import Share

FLOOR = 0.01
"""What each of several jobs on a device gets of its time at least; less where that is more than equal parts."""


def with_accelerators(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with what each job holds of its node's accelerators.

    Args:
        plan: What a policy made of the snapshot.
        snapshot: What it saw.
    """
    users = {job.id: job for job in snapshot.jobs if job.resources.accelerators}
    if not users:
        return plan
    nodes = {node.id: node for node in snapshot.nodes}
    entries = {entry.job_id: entry for entry in plan.assignments if entry.job_id in users and entry.node_id in nodes}
    by_node: dict[str, list[JobView]] = {}
    for job in by_submission(users.values()):
        if (entry := entries.get(job.id)) is not None:
            by_node.setdefault(entry.node_id, []).append(job)
    completed: dict[str, Assignment] = {}
    for node_id, jobs in by_node.items():
        held = grants(nodes[node_id], jobs)
        if held:
            completed.update(_completed(nodes[node_id], [entries[name] for name in held], held))
    if not completed:
        return plan
    return replace(plan, assignments=tuple(completed.get(entry.job_id, entry) for entry in plan.assignments))


def _completed(node: NodeView, entries: Sequence[Assignment], held: Mapping[str, Grant]) -> dict[str, Assignment]:
    """Assignments of a node with their devices; only those that differ from what the policy made."""
    shares = {entry.job_id: entry.share for entry in entries}
    if all(_same_devices(share.accelerators, held[name]) for name, share in shares.items()):
        return {}
    fractions = {
        device: divide_device({name: shares[name].cpu_weight for name in names})
        for device, names in holders(held).items()
    }
    return {
        entry.job_id: replace(
            entry, share=with_fractions(entry.share, entry.job_id, held[entry.job_id], fractions, node)
        )
        for entry in entries
    }


def divide_device(weights: Mapping[str, float]) -> dict[str, float]:
    """Fractions of a device in proportion to weights, none below the floor; they add up to 1.

    Args:
        weights: Of the jobs on it, by id, >= 0.
    """
    if len(weights) == 1:
        return dict.fromkeys(weights, 1.0)
    floor, total = min(FLOOR, 1.0 / len(weights)), math.fsum(weights.values())
    if total > 0 and min(weights.values()) >= floor * total:
        return {name: weight / total for name, weight in weights.items()}  # nobody needs its floor
    return divide({name: Claim(weight, floor) for name, weight in sorted(weights.items())}, 1.0)


def holders(held: Mapping[str, Grant]) -> dict[str, list[str]]:
    """The jobs on each device."""
    found: dict[str, list[str]] = {}
    for name, grant in held.items():
        for share in grant:
            found.setdefault(share.id, []).append(name)
    return found


def with_fractions(
    share: Share, job_id: str, held: Grant, fractions: Mapping[str, Mapping[str, float]], node: NodeView
) -> Share:
    """A share with what its job may use of the devices that it holds, which its reason tells too.

    Args:
        share: What it may use of the CPU.
        job_id: The job.
        held: Its devices.
        fractions: Of each device what each job on it gets.
        node: The node.
    """
    grant = tuple(replace(each, fraction=fractions[each.id][job_id]) for each in held)
    names = names_of(node)
    parts = [_words(names.get(each.id, each.id), each.fraction, len(fractions[each.id]) - 1) for each in grant]
    return replace(share, accelerators=grant, reason=f"{share.reason}; {', '.join(parts)}")


def _words(device: str, fraction: float, others: int) -> str:
    if not others:
        return f"{device} to itself"
    return f"{fraction * 100:.3g} % of {device} beside {others} other job{'s' if others > 1 else ''}"


def _same_devices(given: Grant, held: Grant) -> bool:
    return [(share.id, share.memory_bytes) for share in given] == [(share.id, share.memory_bytes) for share in held]
