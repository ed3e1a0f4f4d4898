"""Tokens as their operator gives them out and takes them back; callers are known by them from the next call on."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.errors import ConflictError, NotFoundError, QuotaExceededError, wrong_field
from tiercel.core.issued_tokens import (
    DEFAULT_SECONDS,
    KIND,
    MOST_FORGOTTEN,
    MOST_OF_A_TENANT,
    REMEMBERED_SECONDS,
    IssuedToken,
    validate_token,
)
from tiercel.core.tokens import Token, hash_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.tokens import TokenStore
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.roles import Role

logger = logging.getLogger(__name__)


class Tokens:
    """Gives out tokens.

    Args:
        tenancy: Who the tenants are; learns of each token.
    """

    def __init__(self, store: TokenStore, tenancy: Tenancy, clock: Clock) -> None:
        self._store = store
        self._tenancy = tenancy
        self._clock = clock
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read what is kept."""
        for token in await self._store.load():
            self._tenancy.issued.put(token)

    def list(self) -> Sequence[IssuedToken]:
        """All of them, those that are good no more for a month."""
        since = self._clock.now() - REMEMBERED_SECONDS
        return [token for token in self._tenancy.issued.all() if _ended_at(token) >= since]

    async def create(self, name: str, tenant: str, role: Role, seconds: float) -> tuple[str, IssuedToken]:
        """Give out a token; returns it, secret and all, and what is known of it.

        Args:
            name: What it is for.
            tenant: Whose things it is about; empty for an operator's.
            role: What its bearer may call.
            seconds: How long it is good for; 0 for 90 days.

        Raises:
            InvalidSpecError: It cannot be that.
            ConflictError: A usable token of the tenant has that name.
            QuotaExceededError: The tenant has as many as it may.
            CannotWriteError: It cannot be kept.
        """
        seconds = seconds or DEFAULT_SECONDS
        validate_token(name, tenant, role, seconds)
        if tenant and tenant not in self._tenancy.tenants:
            raise wrong_field("tenant", f"there is no tenant {tenant!r}; make it with 'tiercel up --tenant {tenant}'")
        async with self._changing:
            now = self._clock.now()
            of_tenant = [token for token in self._tenancy.issued.all() if token.tenant == tenant]
            usable = [token for token in of_tenant if token.is_usable(now)]
            if any(token.name == name for token in usable):
                raise ConflictError(
                    f"name: there is a token {name!r} already; revoke it, or choose another", field="name"
                )
            if len(usable) >= MOST_OF_A_TENANT:
                raise QuotaExceededError(
                    f"{tenant or 'the operator'} has {MOST_OF_A_TENANT} tokens and may have no more; revoke some first"
                )
            drawn = Token.draw(KIND)
            text = drawn.to_text()
            token = IssuedToken(drawn.id, name, tenant, role, now, now + seconds, sha256=hash_token(text))
            forgotten = _forgotten([each for each in of_tenant if not each.is_usable(now)], now)
            await self._store.add(token, forgotten)
            self._tenancy.issued.forget(forgotten)
            self._tenancy.issued.put(token)
        logger.info("token %s (%s) was made for %s as %s", token.id, name, tenant or "the operator", role)
        return text, token

    async def revoke(self, token_id: str) -> IssuedToken:
        """Take a token back.

        Raises:
            NotFoundError: There is none of this id.
            CannotWriteError: It cannot be kept that it was.
        """
        async with self._changing:
            token = self._tenancy.issued.get(token_id)
            if token is None:
                raise NotFoundError(
                    f"token_id: there is no token {token_id[:40]!r}; 'tiercel token ls' lists all", field="token_id"
                )
            if token.revoked_at is None:
                token = replace(token, revoked_at=self._clock.now())
                await self._store.revoke(token.id, self._clock.now())
                self._tenancy.issued.put(token)
        logger.info("token %s (%s) was revoked", token.id, token.name)
        return token


def _ended_at(token: IssuedToken) -> float:
    return token.expires_at if token.revoked_at is None else token.revoked_at


def _forgotten(ended: Sequence[IssuedToken], now: float) -> list[str]:
    """The ids of those that need not be remembered: long gone, or too many."""
    newest_first = sorted(ended, key=_ended_at, reverse=True)
    return [
        token.id
        for place, token in enumerate(newest_first)
        if place >= MOST_FORGOTTEN or _ended_at(token) < now - REMEMBERED_SECONDS
    ]
