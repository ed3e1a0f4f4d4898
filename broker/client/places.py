"""Where endpoints answer, and what TLS needs to ask there: as the broker says."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import NotFoundError, UnavailableError
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from tiercel.broker.client.access import Access
    from tiercel.broker.client.connection import Connection
    from tiercel.core.endpoint_views import EndpointInfo


# For so long what the broker gave is good whatever fails: a node that is away costs the broker no certificates.
_TRUSTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint answers."""

    url: str  # ``http://`` or ``https://`` with host and port
    node: str = ""  # the node whose certificate is expected there; empty for none, or for any
    access: EndpointAccess = EndpointAccess.TENANT  # who may ask


class Places(Protocol):
    """Knows where to ask."""

    async def find(self, endpoint: str, silent: Collection[str] = ()) -> Place:
        """Where an endpoint answers now.

        Args:
            endpoint: Its name.
            silent: URLs that did not answer just now; one of them only where there is no other.

        Raises:
            TiercelError: Nowhere, or it cannot be found out.
        """

    async def encryption(self, place: Place, *, has_key: bool) -> Mapping[str, Any]:
        """What a request needs there, as aiohttp takes it; ``has_key`` says that one is presented.

        Raises:
            TiercelError: What it needs is not to be had.
        """

    def forget_trust(self) -> None:
        """No connection came about: whom to believe, and what is shown, may be another one by now."""


class BrokerPlaces:
    """What the broker says.

    Args:
        connection: To the broker.
        list_endpoints: Asks it for the tenant's endpoints.
        is_elsewhere: Whether it is on another machine.
    """

    def __init__(
        self,
        connection: Connection,
        list_endpoints: Callable[[], Awaitable[tuple[EndpointInfo, ...]]],
        *,
        is_elsewhere: bool,
    ) -> None:
        self._connection = connection
        self._list_endpoints = list_endpoints
        self._is_elsewhere = is_elsewhere
        self._access: Access | None = None
        self._since = 0.0

    async def find(self, endpoint: str, silent: Collection[str] = ()) -> Place:
        """Where the tenant's endpoint answers."""
        places = places_of(endpoint, await self._list_endpoints())
        place = next((each for each in places if each.url not in silent), places[0])
        if self._is_elsewhere and not place.node:
            raise UnavailableError(f"Endpoint '{endpoint}' answers on the broker's own machine alone; ask it there.")
        return place

    async def encryption(self, place: Place, *, has_key: bool) -> Mapping[str, Any]:
        """A context that believes the broker's authority, and shows the tenant's certificate where that is needed."""
        if not place.node:
            return {}
        # What asks nobody on this machine does without libraries for certificates.
        from tiercel.broker.client.access import Access
        from tiercel.core.trust.names import node_name

        if self._access is None:
            self._access, self._since = Access(self._connection), time.monotonic()
        needs_name = not (has_key or place.access is EndpointAccess.PUBLIC)
        context = await (self._access.context() if needs_name else self._access.stranger_context())
        return {"ssl": context, "server_hostname": node_name(place.node)}

    def forget_trust(self) -> None:
        """The broker is asked for all of it again, unless it just was."""
        if time.monotonic() - self._since > _TRUSTED_SECONDS:
            self._access = None


_NAMED = 10  # of more endpoints a sentence is not to be read


def _others(endpoint: str, known: list[str]) -> str:
    near = difflib.get_close_matches(endpoint, known, n=1)
    meant = f"; did you mean '{near[0]}'?" if near else "."
    more = f", and {len(known) - _NAMED} more that 'tiercel endpoints' lists" if len(known) > _NAMED else ""
    return f" (known: {', '.join(known[:_NAMED]) or 'none'}{more}){meant}"


def places_of(endpoint: str, endpoints: tuple[EndpointInfo, ...]) -> tuple[Place, ...]:
    """Where an endpoint answers: its home first if it is one of them, and last if another node answers in its place.

    Args:
        endpoint: Its name.
        endpoints: All that the tenant has.

    Raises:
        NotFoundError: It is none of them.
        UnavailableError: It does not answer.
    """
    known = {info.name: info for info in endpoints}
    info = known.get(endpoint)
    if info is None:
        raise NotFoundError(f"There is no endpoint '{endpoint}'{_others(endpoint, sorted(known))}", field="endpoint")
    if info.live_version is None:
        raise UnavailableError(
            f"Endpoint '{endpoint}' has no version yet; it gets one when a job reaches its first tier."
        )
    addresses = {each.node_id: each.serving_http for each in info.places if each.answering_version is not None}
    addresses.setdefault(info.node_id, info.serving_http)  # it hands on what it does not answer itself
    # Whatever a node says of itself: to another machine nothing is sent in the clear.
    asked = {node_id: each for node_id, each in addresses.items() if each.startswith("https://") or is_loopback(each)}
    found = tuple(_place(node_id, address, info.access) for node_id, address in asked.items())
    if not found:
        raise UnavailableError(f"The inference server of endpoint '{endpoint}' does not answer; try again.")
    return found


def _place(node_id: str, address: str, access: EndpointAccess) -> Place:
    is_encrypted = address.startswith("https://")
    return Place(address, node_id, access) if is_encrypted else Place(f"http://{address}", access=access)
