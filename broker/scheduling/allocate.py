"""Step "allocate": dividing a node's CPU, and its accelerators, among its jobs.

* :func:`divide`: in proportion to weights, each within bounds of its own.
* :func:`by_turns`: a few run, the others keep a floor.
* :func:`with_accelerators`: accelerators in a plan whose policy knows nothing of them, one pure step after the policy,
  live and simulated. What a policy says about CPU is a statement of how much each job matters. So the jobs on an
  accelerator get fractions of its time in proportion to their CPU weights, each at least a small floor. What a policy
  filled in itself stands. Costs nothing where no job uses accelerators.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tiercel.broker.scheduling.accelerators import Grant, grants
from tiercel.broker.scheduling.explain import accelerator_names, part_of_accelerator
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.rank import by_submission
from tiercel.core.shares import Share

FLOOR = 0.01
"""What all jobs of a node that wait for their turn get together, and what each of several jobs on an accelerator gets
of its time at least; less where that is more than equal parts."""

_Name = TypeVar("_Name", bound=Hashable)

# Less room than this (cores) is a rounding error and not worth a place in front.
_NO_ROOM = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody may get."""

    weight: float  # its claim relative to the others', >= 0 and finite
    floor: float  # it gets at least this
    ceiling: float = 1.0  # it gets at most this; not below the floor


def divide(claims: Mapping[str, Claim], capacity: float) -> dict[str, float]:
    """Divide ``capacity`` in proportion to the weights within each one's bounds.

    The result is ``clamp(scale * weight, floor, ceiling)`` with the one scale that uses up the capacity. Less than the
    capacity is given only where all that have a weight are at their ceilings. Weights that are all zero count as equal.

    Args:
        claims: Who claims what. The floors must fit into the capacity.
        capacity: What there is.

    Returns:
        What each one gets.
    """
    if not any(claim.weight > 0 for claim in claims.values()):
        claims = {name: Claim(1.0, claim.floor, claim.ceiling) for name, claim in claims.items()}
    # The total grows with the scale, linear between the scales at which somebody leaves its floor or hits its ceiling.
    scales = sorted({bound / claim.weight for claim in claims.values() if claim.weight > 0 for bound in _bounds(claim)})
    index = bisect_left(scales, capacity, key=lambda scale: _total(claims, scale))
    if index == len(scales):
        return _shares(claims, scales[-1]) if scales else {}
    low = scales[index - 1] if index else 0.0
    before, after = _total(claims, low), _total(claims, scales[index])
    part = (capacity - before) / (after - before) if after > before else 0.0
    return _shares(claims, low + max(part, 0.0) * (scales[index] - low))


def _bounds(claim: Claim) -> tuple[float, float]:
    return (claim.floor, claim.ceiling)


def _shares(claims: Mapping[str, Claim], scale: float) -> dict[str, float]:
    return {name: min(max(scale * claim.weight, claim.floor), claim.ceiling) for name, claim in claims.items()}


def _total(claims: Mapping[str, Claim], scale: float) -> float:
    return sum(_shares(claims, scale).values())


# --- Turns ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turns:
    """What the jobs of a node get by their position in its queue."""

    weights: tuple[float, ...]  # one for each job, in the order of the queue
    front: int  # so many jobs, the first of the queue, run now; the others keep a floor


def by_turns(
    cores: Sequence[float],
    node_cores: float,
    *,
    at_a_time: int | None = None,
    floor: float = FLOOR,
) -> Turns:
    """Weights of the jobs of a node that take turns.

    Those in front share what the floor leaves, in proportion to the cores that they can use and that those before them
    left. The others share the floor alike.

    Args:
        cores: Cores that each job can use at most, > 0, in the order of the queue.
        node_cores: Cores of the node.
        at_a_time: So many are in front; None for as many as it takes to use all cores of the node.
        floor: What all the others get together, a fraction of the node in (0, 1).
    """
    granted: list[float] = []
    left = node_cores
    for wanted in cores:
        if at_a_time is None and left <= _NO_ROOM:
            break
        if at_a_time is not None and len(granted) >= at_a_time:
            break
        use = min(wanted, node_cores) if at_a_time is not None else min(wanted, left)
        granted.append(use)
        left -= use
    weights = beside_floor(dict(enumerate(granted)), range(len(cores)), 1.0, floor)
    return Turns(weights=tuple(weights.values()), front=len(granted))


def beside_floor(
    used: Mapping[_Name, float], names: Sequence[_Name], capacity: float, floor: float
) -> dict[_Name, float]:
    """What those in front get in proportion to what they use, then what the others get, who share the floor alike.

    Args:
        used: What each of those in front can use.
        names: All, in any order.
        capacity: What there is.
        floor: What the others get together, a fraction of it.
    """
    rest = [name for name in names if name not in used]
    for_rest = capacity * floor if rest else 0.0
    scale = (capacity - for_rest) / (math.fsum(used.values()) or 1.0)
    return {name: use * scale for name, use in used.items()} | {name: for_rest / len(rest) for name in rest}


# --- Accelerators -----------------------------------------------------------------------------------------------------


def with_accelerators(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan with what each job holds of its node's accelerators."""
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
    """Assignments of a node with their accelerators; only those that differ from what the policy made."""
    shares = {entry.job_id: entry.share for entry in entries}
    if all(_same_accelerators(share.accelerators, held[name]) for name, share in shares.items()):
        return {}
    fractions = {
        accelerator: divide_accelerator({name: shares[name].cpu_weight for name in names})
        for accelerator, names in holders(held).items()
    }
    return {
        entry.job_id: replace(
            entry, share=with_fractions(entry.share, entry.job_id, held[entry.job_id], fractions, node)
        )
        for entry in entries
    }


def divide_accelerator(weights: Mapping[str, float]) -> dict[str, float]:
    """Fractions of an accelerator in proportion to weights, none below the floor; they add up to 1.

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
    """The jobs on each accelerator."""
    found: dict[str, list[str]] = {}
    for name, grant in held.items():
        for share in grant:
            found.setdefault(share.id, []).append(name)
    return found


def with_fractions(
    share: Share, job_id: str, held: Grant, fractions: Mapping[str, Mapping[str, float]], node: NodeView
) -> Share:
    """A share with what its job may use of the accelerators that it holds, which its reason tells too.

    Args:
        share: What it may use of the CPU.
        job_id: The job.
        held: Its accelerators.
        fractions: Of each accelerator what each job on it gets.
        node: The node.
    """
    grant = tuple(replace(each, fraction=fractions[each.id][job_id]) for each in held)
    names = accelerator_names(node)
    parts = [
        part_of_accelerator(names.get(each.id, each.id), each.fraction, len(fractions[each.id]) - 1) for each in grant
    ]
    return replace(share, accelerators=grant, reason=f"{share.reason}; {', '.join(parts)}")


def _same_accelerators(given: Grant, held: Grant) -> bool:
    return [(share.id, share.memory_bytes) for share in given] == [(share.id, share.memory_bytes) for share in held]
