"""What policies see of jobs and nodes: built here for the live broker and the simulator alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tiercel.broker.lifecycle.move import may_move
from tiercel.broker.scheduling.accelerators import without_leaving
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.core.jobs import Job, JobSpec, Observation
from tiercel.core.nodes import Node
from tiercel.core.tenants import NO_CLASS, PriorityClass

_NO_DATA: frozenset[str] = frozenset()
_NO_LABELS: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a policy is shown of a job and the job itself does not know."""

    workload: str  # see :class:`.JobView`
    similar: tuple[str, ...]  # see :class:`.JobView`
    tenant_weight: float  # see :class:`.JobView`
    observations: tuple[Observation, ...]  # see :class:`.JobView`
    cpu_seconds: float  # see :class:`.JobView`
    accelerator_seconds: float  # see :class:`.JobView`
    may_migrate: bool = True  # whether it may be sent to another node at all
    priority_class: PriorityClass = NO_CLASS  # see :class:`.JobView`
    meant_for: str = ""  # node that it is meant for while it has no other, or empty


def job_view(job: Job, facts: JobFacts) -> JobView:
    """A job as policies see it: one that is being moved where it goes."""
    spec, move = job.spec, job.moving_to
    home = job.node_id if job.run_active else job.checkpoint_node or facts.meant_for
    return JobView(
        id=job.id,
        tenant=job.tenant,
        submitted_at=job.submitted_at,
        direction=spec.direction,
        tiers=job.tiers,
        resources=spec.resources,
        runtime=spec.runtime,
        image=spec.image,
        node_id=move.node_id if move is not None else home,
        movable=not job.run_active,
        share=move.share if move is not None else job.share,
        observations=facts.observations,
        cpu_seconds=facts.cpu_seconds,
        accelerator_seconds=facts.accelerator_seconds,
        name=spec.name,
        tenant_weight=facts.tenant_weight,
        workload=facts.workload,
        similar=facts.similar,
        started_at=job.started_at,
        max_epochs=spec.max_epochs,
        endpoint=spec.endpoint,
        variant=spec.variant,
        home=job.warm_node if job.starts_warm else "",
        continues=spec.continue_after_last_tier,
        migratable=facts.may_migrate and may_move(job),
        migrations=job.earlier.migrations,
        migrated_at=job.earlier.migrated_at,
        data=needed_data(spec),
        node_labels=needed_labels(spec),
        priority=spec.priority,
        priority_class=facts.priority_class,
        stopping=job.is_stopping,
    )


def needed_data(spec: JobSpec) -> frozenset[str]:
    """Names of the data sets that must be on the node of a job."""
    return frozenset([each.name for each in spec.data if not each.url]) if spec.data else _NO_DATA


def needed_labels(spec: JobSpec) -> frozenset[tuple[str, str]]:
    """Labels that a node must have to run a job."""
    return frozenset(spec.node_labels.items()) if spec.node_labels else _NO_LABELS


def node_view(node: Node) -> NodeView:
    """A node as policies see it."""
    data = frozenset([each.name for each in node.data])
    return NodeView(
        node.id,
        node.cpu_cores,
        node.memory_bytes,
        node.runtimes,
        node.images,
        node.accelerators,
        data,
        frozenset(node.labels.items()),
        node.drain,
    )


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a job that goes elsewhere holds of the node that it has not left yet."""

    node_id: str  # the node
    memory_bytes: int  # memory
    accelerators: tuple[str, ...] = ()  # ids of accelerators


def leaving_of(job: Job) -> Leaving | None:
    """What a job still holds of the node that it leaves; None for one that stays."""
    if not job.is_moving:
        return None
    held = job.share.accelerators if job.share is not None else ()
    return Leaving(job.node_id, job.spec.resources.memory_bytes, tuple(each.id for each in held))


def nodes_without(nodes: Iterable[NodeView], leaving: Iterable[Leaving]) -> tuple[NodeView, ...]:
    """The nodes without what jobs that leave them still hold; the same objects where nobody leaves."""
    memory: Counter[str] = Counter()
    accelerators: dict[str, list[str]] = {}
    for each in leaving:
        memory[each.node_id] += each.memory_bytes
        accelerators.setdefault(each.node_id, []).extend(each.accelerators)
    return tuple([without_leaving(node, memory[node.id], accelerators.get(node.id, ())) for node in nodes])
