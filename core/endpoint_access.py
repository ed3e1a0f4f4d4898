"""Who may ask an endpoint: its rule, its keys, and the table of all of them that a node's inference server goes by."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EndpointAccess(enum.Enum):
    """Who may ask an endpoint."""

    PUBLIC = "public"
    """Whoever reaches it."""
    TENANT = "tenant"
    """Its tenant, by certificate; on the node's own machine everybody."""
    KEY = "key"
    """Whoever has one of its keys, wherever from."""


KEY_KIND = "key"
"""What tokens are called that are keys of endpoints, see :mod:`tiercel.core.tokens`."""


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """What a node is told of a key.

    Attributes:
        id: Its name within the broker, no secret.
        sha256: Of the whole key, hexadecimal.
        per_second: How many requests a second it is good for on this node; 0 for any number.
        expires_at: When it ends, seconds since the Unix epoch; None for never.
    """

    id: str
    sha256: str
    per_second: float = 0.0
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class EndpointRule:
    """Who may ask one endpoint.

    Attributes:
        endpoint: Its name.
        tenant: Its owner.
        access: Who may ask it.
        keys: Its keys; they count where ``access`` says so.
    """

    endpoint: str
    tenant: str
    access: EndpointAccess
    keys: tuple[EndpointKey, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Who may ask what, of all endpoints of a broker."""

    endpoints: tuple[EndpointRule, ...] = ()
