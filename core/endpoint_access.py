"""Who may ask an endpoint: its rule, its keys, and the table of all of them that a node's inference server goes by."""

from __future__ import annotations

import enum
import math
import unicodedata
from dataclasses import dataclass

from tiercel.core.errors import wrong_field
from tiercel.core.rates import MAX_PER_SECOND


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
KEY_VARIABLE = "TIERCEL_KEY"
"""The environment's variable with the key that requests to endpoints carry."""
MAX_KEYS_OF_AN_ENDPOINT = 100
MAX_KEYS_OF_A_TENANT = 1000
MAX_KEY_NAME_CHARACTERS = 63
MAX_KEY_SECONDS = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """What a node is told of a key."""

    id: str  # its name within the broker, no secret
    sha256: str  # of the whole key, hexadecimal
    per_second: float = 0.0  # how many requests a second it is good for on this node; 0 for any number
    expires_at: float | None = None  # when it ends, seconds since the Unix epoch; None for never


@dataclass(frozen=True, slots=True)
class EndpointRule:
    """Who may ask one endpoint."""

    endpoint: str  # its name
    tenant: str  # its owner
    access: EndpointAccess  # who may ask it
    keys: tuple[EndpointKey, ...] = ()  # its keys; they count where ``access`` says so


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Who may ask what, of all endpoints of a broker."""

    endpoints: tuple[EndpointRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an endpoint, as its tenant sees it."""

    id: str  # names it, no secret
    endpoint: str  # what it is good for
    name: str  # the tenant's own word for it, or empty
    per_second: float  # how many requests a second it is good for on all nodes together; 0 for any number
    created_at: float  # seconds since the Unix epoch
    expires_at: float | None = None  # when it ends; None for never


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How a key was used on a node in a while."""

    id: str  # the key's
    requests: int  # requests that came with it, those among them that were too many


def validate_key(name: str, per_second: float, seconds: float) -> None:
    """Check what a key is asked for.

    Raises:
        InvalidSpecError: Something is wrong; names it.
    """
    if len(name) > MAX_KEY_NAME_CHARACTERS or any(unicodedata.category(each)[0] in "CZ" for each in name):
        raise wrong_field(
            "name", f"is no word for a key; use up to {MAX_KEY_NAME_CHARACTERS} characters without spaces, or none"
        )
    if not (math.isfinite(per_second) and 0 <= per_second <= MAX_PER_SECOND):
        raise wrong_field(
            "rate", f"{per_second} requests a second are no rate; give up to {MAX_PER_SECOND:.0f}, or 0 for any number"
        )
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_KEY_SECONDS):
        raise wrong_field("days", "are none that a key can last; give up to 3650, or 0 for ever")
