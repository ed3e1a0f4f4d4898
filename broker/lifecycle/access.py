"""Who may ask which endpoint, and how a key's rate is divided among nodes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tiercel.core.endpoint_access import EndpointKey, EndpointRule, Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.core.endpoints import Endpoint

RESERVED: Final = 0.1
"""Of a key's rate, what is divided evenly, so that a node which nobody asked yet can begin to answer."""


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key as the broker keeps it."""

    key: Key  # what its tenant sees
    tenant: str  # whose it is
    sha256: str  # of the whole key, hexadecimal: enough to know it again


def counts(kept: KeptKey, endpoint: Endpoint) -> bool:
    """Whether a key is one of this endpoint, and not of one that had its name before."""
    made_for = (kept.key.endpoint, kept.tenant) == (endpoint.name, endpoint.tenant)
    return made_for and kept.key.created_at > endpoint.keys_from


def rule_of(endpoint: Endpoint, keys: Iterable[KeptKey], parts: Mapping[str, float]) -> EndpointRule:
    """What a node is told of an endpoint.

    Args:
        endpoint: The endpoint.
        keys: Those that count for it.
        parts: What a key is good for on the node, requests a second by its id; of the others their whole rate.
    """
    told = tuple(
        EndpointKey(each.key.id, each.sha256, parts.get(each.key.id, each.key.per_second), each.key.expires_at)
        for each in keys
    )
    return EndpointRule(endpoint.name, endpoint.tenant, endpoint.access, told)


def divided(per_second: float, asked: Mapping[str, float], nodes: Iterable[str]) -> dict[str, float]:
    """A key's rate by node: nine tenths by what came lately, one tenth evenly; all evenly where nothing came.

    Args:
        per_second: What the key is good for in all.
        asked: Requests that came with it lately, by node; of other nodes none.
        nodes: Those that may be asked.
    """
    names = sorted(nodes)
    came = sum(asked.get(name, 0.0) for name in names)
    even = per_second / len(names) if names else 0.0
    if not came:
        return dict.fromkeys(names, even)
    return {name: even * RESERVED + per_second * (1 - RESERVED) * asked.get(name, 0.0) / came for name in names}
