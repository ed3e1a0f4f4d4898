"""A provider's token as somebody presents it: which key signed it, and what it says once that is verified."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from joserfc import jws, jwt
from joserfc.errors import JoseError

from tiercel.core.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.access.people.keys import ProviderKey

MAX_CHARACTERS = 7_500
"""Of a token; with the rest of a call's headers that is what the listener takes."""
MAX_SUBJECT_CHARACTERS = 255
CLOCKS_SECONDS = 60.0
"""By how much the provider's clock may be ahead of ours."""
LONGEST_SECONDS = 24 * 3600.0
"""For how long a token may be good in all: none can be taken back before it runs out."""
_LAST_MOMENT = 253_402_300_799  # the end of the year 9999
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
# What else a provider signs, such as orders to sign somebody out, says so here.
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})


class _Limits(jws.JWSRegistry):
    """The library's limits, and ours."""

    max_header_length = 2_000
    max_payload_length = MAX_CHARACTERS


@dataclass(frozen=True, slots=True)
class Expected:
    """What every token must say."""

    issuer: str  # who made it
    audience: str  # for whom: a token for another program is none for us


def has_form(text: str) -> bool:
    """Whether something presented is of the form of a provider's token; of Tiercel's own none is."""
    return _FORM.fullmatch(text) is not None


def key_id_of(text: str) -> str:
    """What a token calls the key that signed it; nothing of it is verified.

    Raises:
        NotAuthenticatedError: It is too long, cannot be read, or names no key.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotAuthenticatedError(
            f"the provider's token has more than {MAX_CHARACTERS} characters; have the provider put less into it"
        )
    key_id = _header(text).get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise NotAuthenticatedError("the provider's token does not name the key that signed it (kid)")
    return key_id


def issuer_of(text: str) -> str:
    """Which provider a token says that it is of; nothing of it is verified. Empty where it says none.

    Args:
        text: What is presented; of the form of one, and read by :func:`key_id_of`.

    Raises:
        NotAuthenticatedError: It cannot be read.
    """
    try:
        claims = json.loads(jws.extract_compact(text.encode(), registry=_Limits()).payload)
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
        raise NotAuthenticatedError("the provider's token cannot be read; it may be cut off") from None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else ""


def verify(text: str, key: ProviderKey, expected: Expected, now: float) -> Mapping[str, Any]:
    """What a token says, if it is signed by a key, is for us, and is good now.

    Args:
        text: What is presented; of the form of one.
        key: The one that it names.
        expected: What it must say.
        now: Seconds since the Unix epoch.

    Raises:
        NotAuthenticatedError: It is not.
    """
    header = _header(text)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in key.algorithms:
        raise NotAuthenticatedError(
            f"the provider's token is signed by {str(algorithm)[:20]!r}, and its key is good for "
            f"{' or '.join(sorted(key.algorithms))}; the broker's operator says which may be (--oidc-algorithm)"
        )
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES or "crit" in header:
        raise NotAuthenticatedError("the provider's token is for something else than to be shown (typ, crit)")
    try:
        # Headers that are unknown say nothing, but for critical ones, which were refused.
        limits = _Limits(algorithms=[algorithm], strict_check_header=False)
        claims = jwt.decode(text, key.key, registry=limits).claims
    except (JoseError, ValueError, TypeError, RecursionError):
        raise NotAuthenticatedError("the provider's token is not signed by the key that it names") from None
    _check(claims, expected, now)
    return claims


def subject_of(claims: Mapping[str, Any]) -> str:
    """Who somebody is.

    Raises:
        NotAuthenticatedError: The token does not say it, or not so that it could be written down.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise NotAuthenticatedError(
            f"the provider's token does not say whose it is (sub) in 1 to {MAX_SUBJECT_CHARACTERS} characters"
        )
    return subject


def _header(text: str) -> Mapping[str, Any]:
    try:
        header = jws.extract_compact(text.encode(), registry=_Limits()).headers()
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
        raise NotAuthenticatedError("the provider's token cannot be read; it may be cut off") from None
    return header


def _check(claims: Mapping[str, Any], expected: Expected, now: float) -> None:
    if claims.get("iss") != expected.issuer:
        raise NotAuthenticatedError(f"the token is of another provider (iss), not of {expected.issuer}")
    audiences = claims.get("aud")
    if expected.audience not in (audiences if isinstance(audiences, list) else [audiences]):
        raise NotAuthenticatedError(
            f"the token is for another program (aud), not for {expected.audience!r}; have the provider make one for it"
        )
    if "cnf" in claims:
        raise NotAuthenticatedError(
            "the provider's token is bound to a key of its holder (cnf), which is not asked for here; have others made"
        )
    _check_moments(claims, now)


def _check_moments(claims: Mapping[str, Any], now: float) -> None:
    made, ends = _moment(claims, "iat"), _moment(claims, "exp")
    begins = _moment(claims, "nbf") if "nbf" in claims else 0.0
    if now >= ends:
        raise NotAuthenticatedError(f"the provider's token ran out {now - ends:.0f} s ago (exp); sign in again")
    if max(made, begins) > now + CLOCKS_SECONDS:
        raise NotAuthenticatedError("the provider's token is not good yet (iat, nbf); compare the clocks")
    if ends - made > LONGEST_SECONDS:
        raise NotAuthenticatedError(
            f"the provider's token is good for {(ends - made) / 3600:.0f} h in all (iat, exp), and "
            f"{LONGEST_SECONDS / 3600:.0f} h are the most; have the provider make them shorter"
        )


def _moment(claims: Mapping[str, Any], name: str) -> float:
    found = claims.get(name)
    # What is no number at all (NaN) is between nothing.
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _LAST_MOMENT:
        raise NotAuthenticatedError(f"the provider's token does not say in numbers since and until when it is ({name})")
    return float(found)
