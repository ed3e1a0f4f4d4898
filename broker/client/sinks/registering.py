"""Keeps a registry of models as endpoints are, once or for as long as somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tiercel.broker.client.client import Client
    from tiercel.core.endpoint_views import VersionInfo

PAUSE_SECONDS = 10.0


class Registry(Protocol):
    """A registry of models; called on threads, by one at a time."""

    def register(self, name: str, versions: Sequence[VersionInfo]) -> int:
        """Have a model say what versions there are; returns how many are new to it."""


async def register(
    client: Client,
    endpoints: Sequence[str],
    registry: Registry,
    *,
    name: str = "",
    follow: bool = False,
    told: Callable[[str, int], None] = lambda _endpoint, _new: None,
) -> dict[str, int]:
    """Register the versions that endpoints have and had; returns how many were new of each.

    Args:
        client: Of the tenant.
        endpoints: The endpoints.
        registry: Where to.
        name: Of the model there; the endpoint's name when empty.
        follow: Go on, with a look in ten seconds, until cancelled.
        told: Called with each endpoint of which something was new, and how many versions that was.

    Raises:
        NotFoundError: The tenant has no such endpoint.
        TiercelError: The registry takes nothing; doing it again goes on from there.
    """
    found = dict.fromkeys(endpoints, 0)
    while True:
        for endpoint in found:
            versions = await client.models.list(endpoint)
            new = await asyncio.to_thread(registry.register, name or endpoint, versions)
            found[endpoint] += new
            if new:
                told(endpoint, new)
        if not follow:
            return found
        await asyncio.sleep(PAUSE_SECONDS)
