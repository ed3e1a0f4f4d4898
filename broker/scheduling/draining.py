"""Jobs of a node that is drained: pure steps around any policy, so that it finds them a place as it does for others.

To the policy a job that may be moved away looks like one that waits for a node; nothing can start on the node that it
leaves (:mod:`.feasible`). Where the policy finds it a place, that is a migration. Where it finds none, the job runs on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.scheduling.interface import JobView, Plan, Snapshot
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_leavers(snapshot: Snapshot) -> Snapshot:
    """What a policy is shown: jobs that are to leave their node wait for another."""
    emptied = _emptied(snapshot)
    leavers = {job.id for job in snapshot.jobs if job.migratable and job.node_id in emptied} if emptied else set()
    if not leavers:
        return snapshot
    return replace(snapshot, jobs=tuple(_as_waiting(job) if job.id in leavers else job for job in snapshot.jobs))


def without_leavers(plan: Plan, snapshot: Snapshot) -> Plan:
    """The plan without a word on jobs that run and are to leave, and for which there is no place.

    Args:
        plan: What the policy made of :func:`with_leavers`.
        snapshot: What is.
    """
    stay = staying(plan, snapshot)
    if not stay:
        return plan
    return replace(plan, waiting={name: why for name, why in plan.waiting.items() if name not in stay})


def staying(plan: Plan, snapshot: Snapshot) -> Mapping[str, str]:
    """Why there is no place for jobs that run and are to leave, by job.

    Args:
        plan: What the policy made of :func:`with_leavers`.
        snapshot: What is.
    """
    if not plan.waiting or not _emptied(snapshot):
        return {}
    running = {job.id for job in snapshot.jobs if not job.movable}
    return {name: why for name, why in plan.waiting.items() if name in running}


def is_emptying(snapshot: Snapshot) -> bool:
    """Whether jobs run that are to leave their node."""
    emptied = _emptied(snapshot)
    return any(job.node_id in emptied and not job.movable for job in snapshot.jobs) if emptied else False


def _emptied(snapshot: Snapshot) -> frozenset[str]:
    return frozenset([node.id for node in snapshot.nodes if node.drain is Drain.MOVE])


def _as_waiting(job: JobView) -> JobView:
    return replace(job, node_id="", movable=True, migratable=False, share=None)
