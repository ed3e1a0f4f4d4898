"""Keys of endpoints: made for tenants, kept as hashes, and told to nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.access import KeptKey
from tiercel.core.endpoint_access import (
    KEY_KIND,
    MAX_KEYS_OF_A_TENANT,
    MAX_KEYS_OF_AN_ENDPOINT,
    Key,
    validate_key,
)
from tiercel.core.errors import NotFoundError, QuotaExceededError
from tiercel.core.tokens import Token, hash_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.store.endpoint_keys import KeyStore

# How long a list shows keys that have run out.
_SHOWN_SECONDS = 30 * 86_400.0


class KeyService:
    """What tenants ask of keys."""

    def __init__(self, store: KeyStore, service: BrokerService, registry: ActorRegistry, clock: Clock) -> None:
        self._store = store
        self._service = service
        self._registry = registry
        self._clock = clock
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Know what is stored, without what ran out long ago."""
        now = self._clock.now()
        kept = await self._store.load()
        old = [each for each in kept if each.key.expires_at is not None and each.key.expires_at + _SHOWN_SECONDS < now]
        if old:
            await self._store.remove(*(each.key.id for each in old))
        self._registry.access_tables.keep(each for each in kept if each not in old)
        self._registry.tell_access()

    async def create(self, tenant: str, endpoint: str, name: str, per_second: float, seconds: float) -> tuple[Key, str]:
        """A key for an endpoint, and what is to be presented, which nobody is told again.

        Args:
            tenant: Who asks.
            endpoint: What it is to be good for.
            name: The tenant's word for it, or empty.
            per_second: How many requests a second; 0 for any number.
            seconds: How long it is good; 0 for ever.

        Raises:
            InvalidSpecError: Something is out of bounds; names it.
            NotFoundError: The tenant has no such endpoint.
            QuotaExceededError: It has as many keys as it may.
        """
        validate_key(name, per_second, seconds)
        self._service.endpoints.find(tenant, endpoint)
        async with self._changing:
            known = self._registry.access_tables.keys_of(tenant)
            self._check_room(endpoint, known)
            token, now = Token.draw(KEY_KIND), self._clock.now()
            key = Key(token.id, endpoint, name, per_second, now, now + seconds if seconds else None)
            kept = KeptKey(key, tenant, hash_token(token.to_text()))
            await self._store.add(kept)
            self._registry.access_tables.keep((kept,))
        self._registry.tell_access()
        return key, token.to_text()

    def list(self, tenant: str, endpoint: str = "") -> Sequence[Key]:
        """The tenant's keys by endpoint and age, or those of one endpoint."""
        return [
            kept.key for kept in self._registry.access_tables.keys_of(tenant) if endpoint in {"", kept.key.endpoint}
        ]

    async def revoke(self, tenant: str, key_id: str) -> None:
        """End a key.

        Raises:
            NotFoundError: The tenant has no such key.
        """
        async with self._changing:
            if all(kept.key.id != key_id for kept in self._registry.access_tables.keys_of(tenant)):
                raise NotFoundError(f"id: there is no key {key_id[:40]!r}; 'tiercel key ls' lists yours", field="id")
            await self._store.remove(key_id)
            self._registry.access_tables.drop(key_id)
        self._registry.tell_access()

    @staticmethod
    def _check_room(endpoint: str, known: Sequence[KeptKey]) -> None:
        of_endpoint = sum(kept.key.endpoint == endpoint for kept in known)
        if of_endpoint >= MAX_KEYS_OF_AN_ENDPOINT or len(known) >= MAX_KEYS_OF_A_TENANT:
            raise QuotaExceededError(
                f"endpoint {endpoint!r} has {of_endpoint} keys of at most {MAX_KEYS_OF_AN_ENDPOINT}, and its tenant "
                f"{len(known)} of at most {MAX_KEYS_OF_A_TENANT}; revoke one with 'tiercel key revoke'"
            )
