"""Finds out whether an inference server is to be believed that somebody has only the address of."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.errors import wrong_field
from tiercel.core.trust.certificates import node_of, speaks_for_broker
from tiercel.core.trust.names import node_name
from tiercel.core.trust.pinning import believe, shown_by

if TYPE_CHECKING:
    from tiercel.core.trust.pinning import Believed
    from tiercel.core.trust.trust import Trust


async def believe_server(address: str, trust: Trust) -> Believed:
    """Find out what TLS needs to know: of a node the name in its certificate, of a proxy the one that was dialled.

    The name is what whoever answers says of itself. TLS then checks that the authority vouches for it; nothing is sent
    before that.

    Raises:
        InvalidSpecError: The file or the pin is of no use, or the broker answers there.
        UnavailableError: Nobody answers there, or nobody that speaks TLS 1.3.
        NotAuthenticatedError: Whoever answers is not vouched for by the key of the pin.
    """
    believed = await believe(address, trust)
    shown = (await asyncio.to_thread(shown_by, address))[0]
    if speaks_for_broker(shown):
        raise wrong_field(
            "address",
            f"at {address} is the broker itself; give a node's, as 'tiercel endpoints' shows it under SERVING",
        )
    node = node_of(shown)
    return replace(believed, name=node_name(node) if node else "")
