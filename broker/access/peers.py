"""How often each peer may do what costs something before it is known who it is; the rest is counted."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tiercel.core.rates import RateLimit

A_SECOND = 10.0
AN_HOUR = 1_000.0
MOST_PEERS = 1_000
OTHERS = "others"
"""In the place of peers beyond the most."""


@dataclass(slots=True)
class _Peer:
    """Of one peer: what it may, and what it was counted for."""

    second: RateLimit = field(default_factory=lambda: RateLimit(A_SECOND, A_SECOND))
    hour: RateLimit = field(default_factory=lambda: RateLimit(AN_HOUR / 3600.0, AN_HOUR))
    counted: int = 0


class Peers:
    """Knows what each address may still do: ten times a second, a thousand times an hour."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def try_take(self, peer: str, now: float) -> bool:
        """Whether a peer may once more; else it is counted.

        Args:
            peer: Its address.
            now: Seconds, monotonic.
        """
        if peer not in self._peers and len(self._peers) >= MOST_PEERS:
            self._make_room()
        found = self._peers.setdefault(peer, _Peer())
        self._peers.move_to_end(peer)
        if found.hour.seconds_until_next(now) <= 0 and found.second.try_take(now):
            found.hour.try_take(now)
            return True
        found.counted += 1
        return False

    def take_counted(self) -> dict[str, int]:
        """How many were counted since this was asked last, by peer."""
        counted = {name: peer.counted for name, peer in self._peers.items() if peer.counted}
        for name in counted:
            self._peers[name].counted = 0
        return counted

    def _make_room(self) -> None:
        _, oldest = self._peers.popitem(last=False)
        if oldest.counted:
            self._peers.setdefault(OTHERS, _Peer()).counted += oldest.counted
