"""The keys that a provider signs with, read from what it lists; whatever cannot be used is left out."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.util import base64_to_int

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

logger = logging.getLogger(__name__)

MOST_KEYS = 100
MAX_ID_CHARACTERS = 256
SMALLEST_RSA_BITS, LARGEST_RSA_BITS = 2048, 8192
_MAX_NUMBER_CHARACTERS = 2_000
_LARGEST_EXPONENT = 2**32
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS = _RSA | {*_CURVES.values()}
"""Those that an operator may allow. None by which whoever verifies could also sign, and never ``none``."""


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A public key."""

    id: str  # what tokens call it (``kid``)
    algorithms: frozenset[str]  # those that it may verify; one key is never good for two kinds of them
    thumbprint: str  # of the key itself: another one under the same id has another
    key: RSAKey | ECKey = field(repr=False)  # the key


def read_keys(listing: object, allowed: Collection[str]) -> Mapping[str, ProviderKey]:
    """The keys of a list in a provider's own form (JWK), by id; of two with the same id the first.

    Args:
        listing: What the provider has in that place; may be anything.
        allowed: The algorithms that the operator allows.

    Returns:
        Those that can be used; none if it is no list, or too long for one.
    """
    if not isinstance(listing, list) or len(listing) > MOST_KEYS:
        logger.warning("the provider lists no keys, or more than %d", MOST_KEYS)
        return {}
    found: dict[str, ProviderKey] = {}
    for number, entry in enumerate(listing, start=1):
        try:
            key = _read_key(entry, allowed)
        except (JoseError, ValueError, TypeError, ArithmeticError) as error:
            # The error of a library could repeat what it was given, at any length.
            logger.info("key %d of the provider is not used: %s", number, str(error)[:200])
        else:
            found.setdefault(key.id, key)
    return found


def _read_key(entry: object, allowed: Collection[str]) -> ProviderKey:
    if not isinstance(entry, dict):
        raise TypeError("it is no JSON object")
    key_id = entry.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_ID_CHARACTERS:
        raise ValueError("it has no id (kid)")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("it is not for signatures (use, key_ops)")
    fits, numbers = _kind(entry)
    algorithms = fits & {*allowed}
    if "alg" in entry:
        algorithms = frozenset(each for each in algorithms if each == entry["alg"])
    if not algorithms:
        raise ValueError("it is for no algorithm that is allowed (--oidc-algorithm)")
    thumbprint = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()
    return ProviderKey(key_id, algorithms, thumbprint, _import(numbers))


def _import(numbers: dict[str, str]) -> RSAKey | ECKey:
    if numbers["kty"] != "RSA":
        return ECKey.import_key({**numbers})
    bits = base64_to_int(numbers["n"]).bit_length()
    if not SMALLEST_RSA_BITS <= bits <= LARGEST_RSA_BITS:
        raise ValueError(f"it has {bits} bits, not {SMALLEST_RSA_BITS} to {LARGEST_RSA_BITS}")
    if base64_to_int(numbers["e"]) > _LARGEST_EXPONENT:
        raise ValueError("its exponent is too large")
    return RSAKey.import_key({**numbers})


def _kind(entry: dict[str, Any]) -> tuple[frozenset[str], dict[str, str]]:
    """The algorithms that a key is made for, and what makes it; whatever else stands there says nothing."""
    kind = entry.get("kty")
    names: tuple[str, ...]
    if kind == "RSA":
        names, fits = ("kty", "n", "e"), _RSA
    elif kind == "EC" and entry.get("crv") in _CURVES:
        names, fits = ("kty", "crv", "x", "y"), frozenset({_CURVES[entry["crv"]]})
    else:
        raise ValueError("it is neither RSA nor of the curves P-256, P-384 and P-521")
    numbers = {name: entry.get(name) for name in names}
    if not all(isinstance(value, str) and 0 < len(value) <= _MAX_NUMBER_CHARACTERS for value in numbers.values()):
        raise ValueError("a number of it is missing, or too long")
    return fits, {name: str(value) for name, value in numbers.items()}
