"""What only the dashboard asks of the actors: nodes with what is on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_states import name_on
from tiercel.broker.api.endpoints import endpoint_told
from tiercel.broker.api.translation import job_to_proto, node_to_proto
from tiercel.broker.conversion import endpoint_from_proto, node_from_proto
from tiercel.core.errors import NotFoundError
from tiercel.core.jsonable import Json, json_of
from tiercel.core.views import JobInfo
from tiercel.core.wire import from_proto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job
    from tiercel.core.nodes import Node
    from tiercel.core.shares import Share


class ClusterReads:
    """Reads the actors.

    Args:
        service: What tenants ask of the broker.
        registry: The actors.
    """

    def __init__(self, service: BrokerService, registry: ActorRegistry) -> None:
        self._service = service
        self._registry = registry

    @property
    def policy(self) -> str:
        """Name of the scheduling policy."""
        return self._registry.scheduler.policy_name

    def nodes(self, tenant: str) -> list[Json]:
        """All nodes, each with what holds a share of it; other tenants' in one entry without names.

        Args:
            tenant: Who asks; empty for an operator, who is told all names.
        """
        return [self._node(node, tenant) for node in self._service.nodes()]

    async def job(self, tenant: str, job_id: str) -> Json | None:
        """A tenant's job, or None."""
        try:
            job = self._service.explained(await self._service.find_job(tenant, job_id))
        except NotFoundError:
            return None
        return from_proto(JobInfo, job_to_proto(job)).to_json()

    def endpoints(self, tenant: str) -> list[Json]:
        """A tenant's endpoints."""
        nodes = {node.id: node for node in self._service.nodes()}
        told = [endpoint_told(self._service, each, nodes) for each in self._service.endpoints.of(tenant)]
        return [endpoint_from_proto(each).to_json() for each in told]

    async def lists(self, tenant: str) -> dict[str, list[Json]]:
        """What a tenant is told of again and again, by the kind of the event; an operator of nodes alone."""
        nodes = {"nodes": self.nodes(tenant)}
        return {**nodes, "endpoints": self.endpoints(tenant)} if tenant else nodes

    def _node(self, node: Node, tenant: str) -> Json:
        jobs = self._service.jobs_on(node.id)
        told = node_from_proto(node_to_proto(node, jobs, self._service.accelerators_of(node.id))).to_json()
        own = [job for job in jobs if tenant in {"", job.tenant}]
        endpoints = [
            self._endpoint_share(actor.endpoint, node.id)
            for _, actor in sorted(self._registry.endpoints.items())
            if actor.endpoint.live
            and tenant in {"", actor.endpoint.tenant}
            and node.id in {actor.endpoint.node_id, *actor.endpoint.replica_nodes}
        ]
        others = [job for job in jobs if job not in own]
        return {
            **told,
            "workloads": [*(_job_share(job, node.id) for job in own), *endpoints],
            "others": _together(others, node.id),
        }

    def _endpoint_share(self, endpoint: Endpoint, node_id: str) -> Json:
        name = endpoint.name if node_id == endpoint.node_id else name_on(endpoint.name, node_id)
        states = self._registry.scheduler.endpoints
        load = states.load(name)
        return {
            "kind": "endpoint",
            "id": endpoint.name,
            "tenant": endpoint.tenant,
            "used_cpu_cores": load.cpu_cores if load is not None else None,
            "requests_per_second": load.requests_per_second if load is not None else None,
            **_share(states.share(name)),
        }


def _job_share(job: Job, node_id: str) -> Json:
    move = job.moving_to
    share = move.share if move is not None and job.is_going_to(node_id) else job.share
    return {
        "kind": "job",
        "id": job.id,
        "name": job.spec.name,
        "tenant": job.tenant,
        "state": job.state.value,
        "arriving": job.is_going_to(node_id),
        "cpu_cores": job.spec.resources.cpu_cores,
        "memory_bytes": job.spec.resources.memory_bytes,
        **_share(share),
    }


def _share(share: Share | None) -> Json:
    if share is None:
        return {"cpu_weight": None, "cpu_cap_cores": None, "accelerators": [], "reason": ""}
    return {
        "cpu_weight": share.cpu_weight,
        "cpu_cap_cores": share.cpu_cap_cores,
        "accelerators": json_of(share.accelerators),
        "reason": share.reason,
    }


def _together(jobs: Iterable[Job], node_id: str) -> Json:
    shares = [_job_share(job, node_id) for job in jobs]
    return {
        "jobs": len(shares),
        "cpu_weight": sum(each["cpu_weight"] or 0.0 for each in shares),
        "memory_bytes": sum(each["memory_bytes"] for each in shares),
        "accelerators": [device for each in shares for device in each["accelerators"]],
    }
