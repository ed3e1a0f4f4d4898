"""Which connections go when there are as many as there may be. Pure.

Whoever holds connections open and asks nothing must not keep others out. So the ones that nothing happens on go, those
of the peer with the most connections first, and of these the longest idle. There is no limit for a peer by itself: all
callers behind a proxy, or on this machine, are one peer.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiercel.core.addresses import network_of

_STUCK_SECONDS = 1.0
# Looking at all of them costs as much as answering a few requests, so each look makes room for several.
_PART = 64


class Doing(enum.IntEnum):
    """What a connection is about; those of the lowest number go first."""

    NOTHING = 0
    ARRIVING = 1
    """A request began to arrive, or an answer is not taken."""
    BUSY = 2
    """A request is being handled: it stays."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What goes on on a connection."""

    peer: str  # who is at the other end, see :func:`peer_of`
    doing: Doing  # what it is about
    since: float  # seconds of the clock at which something last happened


def whom_to_close(activities: Sequence[Activity], now: float) -> list[int]:
    """Indices of the connections that have to go, a few at a time; none where all of them are in use."""
    of_peer = Counter(each.peer for each in activities)
    found: list[tuple[int, int, float, int]] = []
    for index, each in enumerate(activities):
        stuck = each.doing is Doing.ARRIVING and now - each.since > _STUCK_SECONDS
        if each.doing is Doing.NOTHING or stuck:
            found.append((-of_peer[each.peer], each.doing, each.since, index))
    found.sort()
    return [index for *_, index in found[: max(1, len(activities) // _PART)]]


def peer_of(address: Any) -> str:
    """Who has an address, as sockets name it; see :func:`.network_of`."""
    return network_of(str(address[0])) if isinstance(address, tuple) and address else ""
