"""The servers that are compared, in the order in which tables name them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.serving.peers import (
    bentoml,
    fastapi,
    kserve,
    litserve,
    miraserver,
    mlserver,
    mosec,
    ours,
    ray_serve,
    references,
    torchserve,
    triton,
)
from benchmarks.serving.peers.contract import Peer

PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        peer.name: peer
        for peer in (
            ours.PEER,
            references.BARE,
            triton.PEER,
            mosec.PEER,
            fastapi.PEER,
            mlserver.PEER,
            kserve.PEER,
            litserve.PEER,
            bentoml.PEER,
            ray_serve.PEER,
            miraserver.PEER,
            torchserve.PEER,
            references.ECHO,
        )
    }
)
"""All of them by name."""

OURS = ours.NAME
REFERENCES = tuple(peer.name for peer in PEERS.values() if peer.reference)
"""Names of servers that are limits and no rivals."""
