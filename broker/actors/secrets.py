"""Secrets of tenants: kept sealed, and opened for runs alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.core.errors import InvalidSpecError, NotFoundError, QuotaExceededError
from tiercel.core.secrets import MAX_SECRETS_OF_A_TENANT, SealedSecret, Secret, validate_secret

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.sealing import Sealer
    from tiercel.broker.store.sql import Store


class SecretService:
    """What tenants and agents ask of secrets."""

    def __init__(self, store: Store, sealer: Sealer, clock: Clock) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._changing = asyncio.Lock()

    async def set(self, tenant: str, name: str, value: str) -> Secret:
        """Keep a value, in place of an earlier one.

        Raises:
            InvalidSpecError: The name or the value is wrong.
            QuotaExceededError: The tenant has as many secrets as it may.
        """
        validate_secret(name, value)
        async with self._changing:
            known = {secret.name for secret in await self._store.load_secrets(tenant)}
            if name not in known and len(known) >= MAX_SECRETS_OF_A_TENANT:
                raise QuotaExceededError(f"tenant {tenant} has {len(known)} secrets and may have no more; remove one")
            at = self._clock.now()
            await self._store.save_secret(SealedSecret(tenant, name, at, self._sealer.seal(tenant, name, value)))
        return Secret(name, at)

    async def list(self, tenant: str) -> Sequence[Secret]:
        """The tenant's secrets by name."""
        return [Secret(secret.name, secret.set_at) for secret in await self._store.load_secrets(tenant)]

    async def remove(self, tenant: str, name: str) -> None:
        """Forget one.

        Raises:
            NotFoundError: There is none of this name.
        """
        if not await self._store.delete_secret(tenant, name):
            raise NotFoundError(f"name: there is no secret {name!r}; 'tiercel secret ls' lists yours", field="name")

    async def values(self, tenant: str, names: Sequence[str]) -> dict[str, str]:
        """The values of secrets of a tenant, for its run alone.

        Raises:
            InvalidSpecError: One is not there any more, or cannot be opened.
        """
        if not names:
            return {}
        known = {secret.name: secret for secret in await self._store.load_secrets(tenant)}
        check_known(names, known)
        return {name: self._sealer.unseal(tenant, name, known[name].sealed) for name in names}


async def check_secrets(store: Store, tenant: str, names: Sequence[str]) -> None:
    """Check that a tenant has the secrets that a job asks for.

    Raises:
        InvalidSpecError: It has not.
    """
    if names:
        check_known(names, {secret.name for secret in await store.load_secrets(tenant)})


def check_known(names: Sequence[str], known: Container[str]) -> None:
    """Check that all names are known.

    Raises:
        InvalidSpecError: One is not; says how it is set.
    """
    for name in names:
        if name not in known:
            message = f"secrets: there is no secret {name}; set it with 'tiercel secret set {name}'"
            raise InvalidSpecError(message, field="secrets")
