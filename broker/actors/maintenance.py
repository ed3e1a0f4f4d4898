"""What the operator asks about nodes that are to be worked on or switched off: to be emptied, and to be forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.actors.mailbox import send
from tiercel.broker.actors.node_messages import DrainSet
from tiercel.core.errors import NotFoundError
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.drains import DrainStore


@dataclass(frozen=True, slots=True)
class LeftThere:
    """What a node has that is being emptied."""

    jobs: int  # jobs of all tenants that hold something of it
    endpoints: tuple[str, ...]  # endpoints of all tenants that shall answer there, by name


class Maintenance:
    """Has nodes emptied, and remembers which."""

    def __init__(self, store: DrainStore, registry: ActorRegistry) -> None:
        self._store = store
        self._registry = registry
        # What is kept and what the node's actor was told last are the same also when two ask at a time.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read what is kept, before any node is known."""
        self._registry.drains.update(await self._store.load())

    async def drain(self, node_id: str, *, migrate: bool) -> LeftThere:
        """Let nothing new start on a node; returns what is there.

        Args:
            node_id: The node.
            migrate: Whether the jobs that run there are moved to others; else they end by themselves.

        Raises:
            NotFoundError: Nobody knows the node.
            CannotWriteError: The broker's disk takes nothing now; the node stays as it is.
            UnavailableError: Too much is going on about the node; it is drained as soon as it gets to it.
        """
        await self._set(node_id, Drain.MOVE if migrate else Drain.WAIT)
        jobs = [actor.job for actor in self._registry.jobs.values() if actor.job.run_active]
        actor = self._registry.nodes.get(node_id)
        return LeftThere(sum(job.node_id == node_id for job in jobs), actor.answers_for if actor is not None else ())

    async def undrain(self, node_id: str) -> None:
        """Let jobs start there again.

        Raises:
            NotFoundError: Nobody knows the node.
            CannotWriteError: As for :meth:`drain`.
        """
        await self._set(node_id, Drain.NO)

    async def forget(self, node_id: str) -> None:
        """A node was removed: whoever joins by its name is another machine."""
        async with self._changing:
            # In this order: a node that is heard and no longer drained would be told to answer again.
            await self._registry.forget_node(node_id)
            await self._keep(node_id, Drain.NO)
            self._registry.feedback.forget_node(node_id)
            self._registry.inputs.forget_node(node_id)

    async def welcome(self, node_id: str) -> None:
        """A machine joined by a free name: it is not drained, whatever a killed broker left of an earlier one."""
        async with self._changing:
            if node_id in self._registry.drains:
                await self._keep(node_id, Drain.NO)

    async def _set(self, node_id: str, drain: Drain) -> None:
        async with self._changing:
            if node_id not in self._registry.nodes and node_id not in self._registry.drains:
                raise NotFoundError(
                    f"node_id: there is no node {node_id[:64]!r}; 'tiercel nodes' lists all", field="node_id"
                )
            await self._keep(node_id, drain)

    async def _keep(self, node_id: str, drain: Drain) -> None:
        await self._store.put(node_id, drain)
        self._registry.drains[node_id] = drain
        if drain is Drain.NO:
            del self._registry.drains[node_id]
        if (actor := self._registry.nodes.get(node_id)) is not None:
            send(actor, DrainSet(drain))
            await actor.wait_idle()  # whoever asks next is told so
