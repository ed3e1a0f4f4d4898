"""What tenants ask of the broker about endpoints."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tiercel.broker.actors.admission import check_unfed, is_free
from tiercel.broker.actors.endpoint_messages import AccessSet, EndpointDeleted, FileAnnounced, FileArrived
from tiercel.broker.actors.explaining import awaited
from tiercel.broker.actors.replicas import DEPLOY_SECONDS
from tiercel.broker.lifecycle import homes
from tiercel.broker.lifecycle.deployment import check_open, repeated
from tiercel.core.endpoints import DeliveryState, Endpoint
from tiercel.core.errors import EndpointBusyError, NotFoundError, QuotaExceededError, UnavailableError, wrong_field
from tiercel.core.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tiercel.broker.actors.endpoint import EndpointActor
    from tiercel.broker.actors.endpoint_messages import KeptSet, VersionChosen, VersionRemoved
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.node_messages import ServedStatus
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.lifecycle.deployment import Arrived
    from tiercel.broker.lifecycle.drift import Asked
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.deploying import Deploy
    from tiercel.core.endpoint_access import EndpointAccess
    from tiercel.core.endpoints import Delivery, EndpointLoad
    from tiercel.core.feedback import VersionFeedback
    from tiercel.core.shares import Share

    PutFiles = Callable[[str, int], Awaitable[None]]


MAX_ENDPOINTS: Final = 1000
"""A tenant has no more: each of them may hold files on every node for as long as nobody deletes it."""


class EndpointService:
    """Endpoints: whose they are, who answers, and what their tenants want of them."""

    def __init__(
        self, journal: Journal, registry: ActorRegistry, supervisor: Supervisor, admission: asyncio.Lock
    ) -> None:
        self._journal = journal
        self._registry = registry
        self._supervisor = supervisor
        self._admission = admission

    def of(self, tenant: str) -> Sequence[Endpoint]:
        """The tenant's endpoints, by name."""
        taken = filter(None, map(self.taken, sorted(self._registry.endpoints)))
        return [actor.endpoint for actor in taken if actor.endpoint.tenant == tenant]

    def routes(self, tenant: str) -> Routes:
        """Who answers for the tenant's endpoints.

        Raises:
            UnavailableError: The broker began anew, and not all nodes have said what they answer.
        """
        if self._registry.routes() is None:
            self._registry.find_routes()
        table = self._registry.routes()
        if table is None:
            raise UnavailableError("not all nodes have said yet what they answer; ask again in a moment")
        own = {endpoint.name for endpoint in self.of(tenant)}
        return Routes(tuple(route for route in table.routes if route.endpoint in own))

    def find(self, tenant: str, name: str) -> Endpoint:
        """The tenant's endpoint.

        Raises:
            NotFoundError: The tenant has no such endpoint.
        """
        return self._find(tenant, name).endpoint

    async def set_access(self, tenant: str, name: str, access: EndpointAccess) -> None:
        """Say who may ask an endpoint.

        Raises:
            NotFoundError: The tenant has no such endpoint.
            CannotWriteError: The broker's disk takes nothing now; it stays as it is.
        """
        self.find(tenant, name)
        await self._registry.endpoints[name].call(AccessSet(access))

    async def delete(self, tenant: str, name: str) -> None:
        """Forget an endpoint, so that its name is free; what its node has of it goes.

        Raises:
            NotFoundError: The tenant has no such endpoint.
            EndpointBusyError: A job feeds it.
            CannotWriteError: The broker's disk takes nothing now; the endpoint stays.
        """
        await self._supervisor.shield(self._delete(tenant, name), name="deletion")

    async def _delete(self, tenant: str, name: str) -> None:
        async with self._admission:  # no job that feeds it begins meanwhile
            actor = self._find(tenant, name)
            check_unfed(actor.endpoint, self._registry.living_jobs())
            self._journal.check_writable()
            await actor.call(EndpointDeleted())
            self._registry.feedback.forget(name)
            self._registry.inputs.forget(name)

    async def deploy(self, tenant: str, arrived: Arrived, put: PutFiles, held: AbstractContextManager[Any]) -> Delivery:
        """Make a file the next version of an endpoint, which is made where there is none of the name.

        Args:
            tenant: Whose endpoint it is to be.
            arrived: The file.
            put: Puts it where the files of an endpoint's version are.
            held: Left once the file is in its place, or is not taken, even if whoever sent it has gone meanwhile.

        Returns:
            The delivery, whose version answers, or is kept and says why it does not.

        Raises:
            InvalidSpecError: The node refused it, or it takes or gives something else than what answers.
            EndpointBusyError: The endpoint is somebody else's, or has variants.
            UnavailableError: No node can answer with it now, or it is not known in time what becomes of it.
            TiercelError: As :func:`.deployment.accepted`, or the broker's disk takes nothing.
        """
        outcome: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        taking = self._ingest_file(tenant, FileArrived(arrived, put, outcome), held)
        await self._supervisor.shield(taking, name="deployment")
        return await _outcome_of(arrived.deploy, outcome)

    async def deployed(self, tenant: str, deploy: Deploy) -> Delivery | None:
        """The delivery of a file that is there already, or on its way, once that is over; None where it is another one.

        Raises:
            TiercelError: As :meth:`deploy`.
        """
        endpoint = self.check_deploy(tenant, deploy.endpoint)
        if endpoint is None or repeated(endpoint, deploy) is None:
            return None
        outcome: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        await self._registry.endpoints[deploy.endpoint].call(FileAnnounced(deploy, outcome))
        return None if outcome.cancelled() else await _outcome_of(deploy, outcome)

    async def _ingest_file(self, tenant: str, message: FileArrived, held: AbstractContextManager[Any]) -> None:
        name = message.arrived.deploy.endpoint
        with held:
            async with self._admission:  # nobody else takes the name meanwhile
                await self._tell_arrived(tenant, name, message)

    async def _tell_arrived(self, tenant: str, name: str, message: FileArrived) -> None:
        self._journal.check_writable()
        if self.check_deploy(tenant, name) is None:
            before = self._registry.endpoints.get(name)
            earlier = before.endpoint if before is not None else Endpoint(name, tenant)
            self._registry.start_endpoint(replace(earlier, tenant=tenant, objective_seconds=None))
        await self._registry.endpoints[name].call(message)

    def check_deploy(self, tenant: str, name: str) -> Endpoint | None:
        """The endpoint to which a file is to be deployed; None where the name is free.

        Raises:
            EndpointBusyError: It is somebody else's, or has variants.
            QuotaExceededError: The name is free, and the tenant has as many endpoints as it may have.
        """
        taken = self.taken(name)
        if taken is None:
            self.check_room(tenant)
            return None
        endpoint = taken.endpoint
        if endpoint.tenant != tenant:
            raise EndpointBusyError(
                f"endpoint: {name!r} belongs to another tenant; choose another name", field="endpoint"
            )
        check_open(endpoint, self._registry.living_jobs())
        return endpoint

    def check_room(self, tenant: str) -> None:
        """Check that a tenant may have one more endpoint.

        Raises:
            QuotaExceededError: It has as many as it may have.
        """
        if len(self.of(tenant)) >= MAX_ENDPOINTS:
            raise QuotaExceededError(
                f"endpoint: tenant {tenant} has {MAX_ENDPOINTS} endpoints, and no tenant may have more; delete one "
                "that is not used with 'tiercel endpoints delete'",
                field="endpoint",
            )

    def _find(self, tenant: str, name: str) -> EndpointActor:
        actor = self.taken(name)
        if actor is None or actor.endpoint.tenant != tenant:
            raise NotFoundError(
                f"endpoint: there is no endpoint {name!r}; 'tiercel endpoints' lists yours", field="endpoint"
            )
        return actor

    def taken(self, name: str) -> EndpointActor | None:
        """The endpoint of this name, unless the name is free."""
        actor = self._registry.endpoints.get(name)
        return None if actor is None or is_free(actor.endpoint, self._registry.living_jobs()) else actor

    async def change_versions(
        self, tenant: str, name: str, change: VersionChosen | VersionRemoved | KeptSet
    ) -> Endpoint:
        """Let another version of an endpoint answer, or keep other files; returns the endpoint then.

        Raises:
            NotFoundError: The tenant has no such endpoint, or it has no such version.
            InvalidSpecError: That cannot be; says why.
            CannotWriteError: The broker's disk takes nothing now; it stays as it is.
        """
        # First, as a mistake of whoever asks is none of the actor's.
        before = self.find(tenant, name)
        nodes, has_store = self._registry.serving_nodes(name), self._registry.has_store
        if why := homes.why_gone(before, change.applied_to(before), nodes, has_store=has_store):
            raise wrong_field("version", why)
        actor = self._registry.endpoints[name]
        await actor.call(change)
        return actor.endpoint

    def served(self, name: str) -> Mapping[str, ServedStatus]:
        """What the endpoint's node says of it, by variant; empty while it says nothing."""
        actor = self._registry.endpoints.get(name)
        node = self._registry.nodes.get(actor.endpoint.node_id) if actor is not None else None
        served = node.served if node is not None else {}
        return {variant: heard for (endpoint, variant), heard in served.items() if endpoint == name}

    def replicas(self, name: str) -> Mapping[str, ServingNode]:
        """What nodes are to an endpoint, by name."""
        return self._registry.serving_nodes(name)

    def replicas_reason(self, name: str) -> str:
        """Why an endpoint answers on as many nodes as it does; empty where its job says on how many."""
        actor = self._registry.endpoints.get(name)
        return actor.replicas_reason if actor is not None else ""

    def awaited(self, name: str) -> tuple[str, ...]:
        """Which versions of an endpoint are not announced yet that were judged, and why, in plain words."""
        return tuple(awaited(name, self._registry).values())

    def share(self, name: str) -> Share | None:
        """What an endpoint may use of its node; None while nothing limits it."""
        return self._registry.scheduler.endpoints.share(name)

    def feedback(self, name: str) -> Mapping[int, VersionFeedback]:
        """What applications said of the versions of an endpoint, by number."""
        return self._registry.feedback.of(name)

    def inputs(self, endpoint: Endpoint) -> Asked:
        """What its nodes know of what the versions of an endpoint are asked, by number."""
        return self._registry.inputs.of(endpoint)

    def load(self, name: str) -> EndpointLoad | None:
        """What was measured of an endpoint last; None while nothing was, or its node is offline."""
        actor = self._registry.endpoints.get(name)
        node = self._registry.nodes.get(actor.endpoint.node_id) if actor is not None else None
        return self._registry.scheduler.endpoints.load(name) if node is not None and node.node.online else None


async def _outcome_of(deploy: Deploy, outcome: asyncio.Future[Delivery]) -> Delivery:
    try:
        async with asyncio.timeout(DEPLOY_SECONDS):
            delivery = await outcome
    except TimeoutError:
        raise UnavailableError(
            f"it is not known yet whether {deploy.file!r} answers for endpoint {deploy.endpoint!r}; "
            f"'tiercel models ls {deploy.endpoint}' says so once it does"
        ) from None
    if delivery.state is DeliveryState.FAILED:
        raise wrong_field("file", delivery.reason)
    return delivery
