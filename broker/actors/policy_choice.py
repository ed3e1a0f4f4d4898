"""Which policy decides: the one that the broker was started with, else the one that was set last, else the default."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tiercel.broker.actors.scheduler_messages import PolicySet
from tiercel.broker.scheduling.registry import create_policy
from tiercel.core.errors import InvalidSpecError
from tiercel.core.policies import PolicyChoice, PolicySource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.actors.scheduler import SchedulerActor
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.scheduling.options import Options
    from tiercel.broker.scheduling.registry import AnyPolicy
    from tiercel.broker.store.policy import PolicyStore

logger = logging.getLogger(__name__)


class PolicyKeeper:
    """Knows which policy decides, and has another one take its place.

    Args:
        name: The policy that the broker was started with, or the default.
        is_told: Whether whoever started the broker chose it.

    Raises:
        InvalidSpecError: There is no such policy as it was started with.

    Attributes:
        choice: The policy that decides.
    """

    def __init__(self, name: str, options: Options, store: PolicyStore, *, is_told: bool) -> None:
        self._store = store
        self._first = create_policy(name, options)
        self._started_with = name if is_told else ""
        source = PolicySource.START if is_told else PolicySource.DEFAULT
        texts = {key: _text(value) for key, value in options.items()}
        self.choice = PolicyChoice(name, texts, source, self._started_with)
        # What is kept and what decides are the same also when two ask at a time.
        self._changing = asyncio.Lock()

    async def start(self) -> AnyPolicy:
        """The policy that decides first."""
        kept = None if self._started_with else await self._store.load()
        if kept is None:
            return self._first
        name, options = kept
        try:
            policy = create_policy(name, options)
        except InvalidSpecError as error:  # its package may be gone
            logger.warning("The policy that was set, %s, cannot be used, %s decides: %s", name, self.choice.name, error)
            return self._first
        self.choice = PolicyChoice(name, options, PolicySource.SET)
        return policy

    async def set(
        self, name: str, options: Mapping[str, str], scheduler: SchedulerActor, supervisor: Supervisor
    ) -> PolicyChoice:
        """Have another policy decide from now on.

        Raises:
            InvalidSpecError: There is no such policy or option, or it cannot plan for what is there; nothing changes.
            CannotWriteError: The broker's disk takes nothing now. Nothing changes.
        """
        policy = create_policy(name, options)
        return await supervisor.shield(self._set(policy, options, scheduler), name="change of policy")

    async def _set(self, policy: AnyPolicy, options: Mapping[str, str], scheduler: SchedulerActor) -> PolicyChoice:
        async with self._changing:
            scheduler.check_policy(policy)
            await self._store.put(policy.name, options)
            self.choice = PolicyChoice(policy.name, dict(options), PolicySource.SET, self._started_with)
            await scheduler.call(PolicySet(policy))
            return self.choice


def _text(value: bool | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
