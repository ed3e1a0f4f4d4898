"""A broker's actors over a manual clock: everything but the network."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.clock import ManualClock
from testing.jobs import make_spec
from testing.until import until
from tiercel.broker.actors.agents import AgentService
from tiercel.broker.actors.endpoint_messages import DeliveryReported
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.life import TICK_SECONDS, BrokerLife
from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import NodeReported, Wanted
from tiercel.broker.actors.registry import ActorRegistry
from tiercel.broker.actors.service import BrokerService
from tiercel.broker.actors.supervisor import Supervisor
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.job_events import JobInput, Reported, RunExited, RunIsAlive
from tiercel.broker.lifecycle.node import LeaseSettings
from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.interface import Policy
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.sql import Store
from tiercel.broker.store.version_files import VersionStore
from tiercel.core.endpoints import DeliveryState
from tiercel.core.events import Event
from tiercel.core.jobs import Job
from tiercel.core.nodes import Node
from tiercel.core.tenants import Tenant

ALICE = Tenant("alice", "a" * 32)
BOB = Tenant("bob", "b" * 32)
TENANTS = {tenant.name: tenant for tenant in (ALICE, BOB)}
LEASES = LeaseSettings(lease_seconds=10.0, gone_after_seconds=60.0)
GIB = 1024**3


def make_node(node_id: str = "n1", **changes: Any) -> Node:
    return Node(**{"id": node_id, "cpu_cores": 4.0, "memory_bytes": 8 * GIB, "runtimes": ("process",), **changes})


@dataclass
class Actors:
    """The actors of one broker and what they announced."""

    service: BrokerService
    agents: AgentService
    registry: ActorRegistry
    journal: Journal
    store: Store
    clock: ManualClock
    supervisor: Supervisor
    events: list[Event] = field(default_factory=list)

    def everybody(self) -> list[Actor[Any]]:
        """Every actor that is alive."""
        registry = self.registry
        groups: Sequence[Any] = (registry.jobs, registry.endpoints, registry.nodes)
        return [registry.scheduler, *itertools.chain.from_iterable(list(group.values()) for group in groups)]

    async def settle(self) -> None:
        """Wait until nobody has anything left to do."""
        handled = -1
        while handled != (now := sum(actor.statistics().handled for actor in self.everybody())):
            handled = now
            for actor in self.everybody():
                await actor.wait_idle()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, tick by tick."""
        for _ in range(round(seconds / TICK_SECONDS)):
            await self._ticked()
            self.clock.advance(TICK_SECONDS)
            await self._ticked()
            await self.settle()

    async def _ticked(self) -> None:
        """Wait until the broker's clock has told its ticks and sleeps again."""
        async with asyncio.timeout(90):
            while not self.clock.wakes_within(TICK_SECONDS):  # noqa: ASYNC110 - whoever sleeps does not say so
                await asyncio.sleep(0)

    async def wait_admitted(self) -> None:
        """Wait until no admission is under way, waited for or not."""
        await until(lambda: not [task for task in self.supervisor._tasks if task.get_name() == "admission"])
        await self.settle()

    async def connect(self, node: Node | None = None, runs: Sequence[str] = ()) -> tuple[NodeActor, int]:
        """An agent opens its stream."""
        node = node or make_node()
        connected = await self.agents.connect_node(node, frozenset(runs), f"the agent of {node.id}", fenced=True)
        await self.settle()
        return connected

    async def heartbeat(self, actor: NodeActor, epoch: int) -> None:
        await actor.send(NodeReported(epoch))
        await self.settle()

    async def job(self, job_id: str, tenant: Tenant = ALICE) -> Job:
        """The job once everything is settled."""
        await self.settle()
        return await self.service.find_job(tenant.name, job_id)

    async def alive(self, run_id: str) -> None:
        await self._send_to_job(run_id, RunIsAlive(run_id))

    async def _send_to_job(self, run_id: str, message: JobInput) -> None:
        """The node that has the run, if any has, says something of it."""
        actor = self.registry.job_of(run_id)
        await self.agents.deliver_to_job(actor.job.node_id if actor is not None else "n1", run_id, message)

    async def report(self, run_id: str, value: float, sequence: int = 1) -> None:
        """The script reports its metric."""
        message = Reported(run_id, sequence, sequence, {"accuracy": value}, self.clock.now(), float(sequence))
        await self._send_to_job(run_id, message)
        await self.settle()

    async def exit(self, run_id: str, code: int | None = 0, *, lost: bool = False, cpu_seconds: float = 0.0) -> None:
        await self._send_to_job(run_id, RunExited(run_id, code, lost=lost, cpu_seconds=cpu_seconds))
        await self.settle()

    async def delivery(self, delivery_id: str, state: DeliveryState, node_id: str = "n1", **rest: Any) -> None:
        """A node says how far a delivery is."""
        await self.agents.deliver_to_endpoint(DeliveryReported(node_id, delivery_id, DeliveryReport(state, **rest)))
        await self.settle()

    async def delivered(self, delivery_id: str, node_id: str = "n1") -> None:
        await self.delivery(delivery_id, DeliveryState.DELIVERED, node_id, value=0.9, sha256="ab")


@contextlib.asynccontextmanager
async def running_actors(
    store: Store,
    clock: ManualClock | None = None,
    policy: Policy[Any] | None = None,
    versions: VersionStore | None = None,
    checkpoints: CheckpointStore | None = None,
    *,
    has_store: bool = False,
    joined: Callable[[], Collection[str]] = frozenset,
) -> AsyncIterator[Actors]:
    """Actors over a store that is open; leaving is as abrupt for them as ``kill -9``."""
    clock = clock or ManualClock()
    events: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = checkpoints or CheckpointStore(Path(folder, "checkpoints"))
        versions = versions or VersionStore(Path(folder, "versions"))
        async with Supervisor() as supervisor:
            journal = Journal(store, clock, await store.last_sequence(), [events.append])
            chosen = policy if policy is not None else FairPolicy()
            registry = ActorRegistry(
                journal,
                chosen,
                LoopSettings(),
                supervisor,
                clock,
                LEASES,
                {},
                checkpoints,
                versions,
                joined,
                has_store=has_store,
            )
            service = BrokerService(store, journal, registry, supervisor, clock, TENANTS.get)
            agents = AgentService(journal, registry, clock)
            supervisor.start(journal.run(), name="journal")
            life = BrokerLife(store, journal, registry, supervisor, clock, checkpoints, versions)
            await life.start()
            actors = Actors(service, agents, registry, journal, store, clock, supervisor, events)
            await actors.settle()
            yield actors


async def submit(actors: Actors, endpoint: str = "digits", tenant: Tenant = ALICE, key: str = "", **spec: Any) -> Job:
    job = await actors.service.submit(tenant, make_spec(endpoint=endpoint, **spec), key)
    return await actors.job(job.id, tenant)


async def wanted_of(actor: NodeActor, epoch: int) -> Wanted:
    wanted = await actor.wait_wanted(0, epoch)
    assert wanted is not None
    return wanted


async def running(actors: Actors, endpoint: str = "digits", **spec: Any) -> Job:
    job = await submit(actors, endpoint, **spec)
    await actors.alive(job.run_id)
    return await actors.job(job.id)
