"""Asks a provider which keys it signs with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.access.people.keys import ProviderKey, read_keys
from tiercel.broker.access.people.site import ProviderSite
from tiercel.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Provider:
    """Whoever people sign in at.

    Args:
        issuer: Its URL, as its tokens name it.
        algorithms: Those that its tokens may be signed by.

    Raises:
        InvalidSpecError: The URL cannot be a provider's.
    """

    def __init__(self, issuer: str, algorithms: Collection[str]) -> None:
        self.issuer = issuer
        self._site = ProviderSite(issuer)
        self._algorithms = algorithms

    async def fetch_keys(self) -> Mapping[str, ProviderKey]:
        """The keys that it signs with now, by their ids.

        Raises:
            UnavailableError: It does not answer, or with what cannot be used.
        """
        async with self._site.asking() as asking:
            listing = await asking.read(asking.address_in(await asking.about(), "jwks_uri"))
        keys = read_keys(listing.get("keys"), self._algorithms)
        if not keys:
            raise UnavailableError("the provider lists no key that can be used; see broker.log for the reason of each")
        return keys
