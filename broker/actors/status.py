"""What the actors know, at a glance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import tiercel
from tiercel.core.jobs import JobState
from tiercel.core.nodes import Drain
from tiercel.core.status import ClusterStatus, EndpointStatus, NodeStatus, WaitingJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.actors.node import NodeActor
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job

MAX_WAITING = 20
"""Jobs that wait are told of by name up to so many."""

MAX_PROBLEMS = 5
"""Of what is wrong with the artefact store so much is told."""


def status_of(registry: ActorRegistry, tenant: str) -> ClusterStatus:
    """The cluster at a glance.

    Args:
        registry: The actors.
        tenant: Whose jobs and endpoints are told of; empty for all.
    """
    jobs = [actor.job for actor in registry.jobs.values()]
    own = [job for job in jobs if tenant in {"", job.tenant} and not job.state.is_final]
    waiting = sorted((job for job in own if job.state is JobState.PENDING), key=lambda job: (job.submitted_at, job.id))
    endpoints = [actor.endpoint for _, actor in sorted(registry.endpoints.items())]
    return ClusterStatus(
        tiercel.__version__,
        tenant,
        tuple(_node(actor, jobs) for _, actor in sorted(registry.nodes.items()) if actor.is_listed),
        dict(sorted(Counter(job.state.value for job in own).items())),
        tuple(WaitingJob(job.id, job.tenant, job.reason) for job in waiting[:MAX_WAITING]),
        tuple(
            _endpoint(each, registry.nodes.values())
            for each in endpoints
            if each.versions and tenant in {"", each.tenant}
        ),
        store_problems=dict(Counter(job.store_problem for job in own if job.store_problem).most_common(MAX_PROBLEMS)),
    )


def _node(actor: NodeActor, jobs: Sequence[Job]) -> NodeStatus:
    node, disk = actor.node, actor.disk
    there = [job for job in jobs if job.run_active and (job.node_id == node.id or job.is_going_to(node.id))]
    held = {each.id for job in there if job.share is not None for each in job.share.accelerators}
    return NodeStatus(
        node.id,
        node.online,
        node.drain,
        node.version,
        len(there),
        node.cpu_cores,
        sum(job.spec.resources.cpu_cores for job in there),
        node.memory_bytes,
        sum(job.spec.resources.memory_bytes for job in there),
        len(node.accelerators),
        sum(each.id in held for each in node.accelerators),
        tuple(f"{each.name}: {each.problem}" for each in node.accelerators if each.problem),
        disk.free_bytes if disk is not None else 0,
        disk.total_bytes if disk is not None else 0,
        actor.clock_ahead_seconds,
    )


def _endpoint(endpoint: Endpoint, nodes: Iterable[NodeActor]) -> EndpointStatus:
    # A node that is to have a copy is told to answer once it has it; one that is drained only as long as it has to.
    shall = {endpoint.node_id, *endpoint.replica_nodes} if endpoint.live_version else set()
    wanted = [
        actor
        for actor in nodes
        if endpoint.name in actor.answers_for or (actor.node.id in shall and actor.node.drain is Drain.NO)
    ]
    heard = {
        actor.node.id: [each for (name, _), each in actor.served.items() if name == endpoint.name] for actor in wanted
    }
    online = {actor.node.id for actor in wanted if actor.node.online}
    return EndpointStatus(
        endpoint.name,
        endpoint.tenant,
        endpoint.live_version or 0,
        tuple(sorted(heard)),
        tuple(sorted(node for node in online if any(each.version for each in heard[node]))),
        tuple(f"on node {node}: {each.problem}" for node, found in heard.items() for each in found if each.problem),
    )
