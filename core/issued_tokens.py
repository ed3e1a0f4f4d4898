"""Tokens that an operator gives out: what is known of one, which is everything but its secret."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError, wrong_field
from tiercel.core.roles import Role
from tiercel.core.tokens import hash_token, parse_token

if TYPE_CHECKING:
    from collections.abc import Iterable

KIND = "access"
DAY_SECONDS = 86_400.0
DEFAULT_SECONDS = 90 * DAY_SECONDS
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 366 * DAY_SECONDS
MOST_OF_A_TENANT = 100
"""Tokens of a tenant, or of the operator, that may be used at the same time."""
MOST_FORGOTTEN = 100
"""Of a tenant: how many that are good no more are remembered."""
REMEMBERED_SECONDS = 30 * DAY_SECONDS
GIVEN_ROLES = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,62}")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token without its secret."""

    id: str  # names it; no secret
    name: str  # what it is for
    tenant: str  # whose things it is about; empty for an operator's
    role: Role  # what its bearer may call
    created_at: float  # seconds since the Unix epoch
    expires_at: float  # from when on it is good no more
    revoked_at: float | None = None  # when it was taken back, or None
    sha256: str = field(default="", repr=False, metadata={"told": False})  # of all of it: enough to know it again

    def is_usable(self, now: float) -> bool:
        """Whether it is good at a time, in seconds since the Unix epoch."""
        return self.revoked_at is None and now < self.expires_at


class IssuedTokens:
    """Those that were given out, by id."""

    def __init__(self, tokens: Iterable[IssuedToken] = ()) -> None:
        self._by_id = {token.id: token for token in tokens}

    def all(self) -> tuple[IssuedToken, ...]:
        """Every one, usable or not."""
        return tuple(self._by_id.values())

    def get(self, token_id: str) -> IssuedToken | None:
        """The one of this id."""
        return self._by_id.get(token_id)

    def put(self, token: IssuedToken) -> None:
        """Add one, or say what has changed of it."""
        self._by_id[token.id] = token

    def forget(self, ids: Iterable[str]) -> None:
        """Know some no more."""
        for token_id in ids:
            self._by_id.pop(token_id, None)

    def find(self, text: str, now: float) -> IssuedToken | None:
        """Which one somebody presents; None if it is none of these.

        Args:
            text: What is presented; may be anything.
            now: Seconds since the Unix epoch.

        Raises:
            NotAuthenticatedError: It is one, and is good no more.
        """
        presented = parse_token(text, KIND)
        token = None if presented is None else self._by_id.get(presented.id)
        if token is None or not hmac.compare_digest(token.sha256, hash_token(text)):
            return None
        check_usable(token, now)
        return token


def check_usable(token: IssuedToken, now: float) -> None:
    """Do nothing if a token is good.

    Raises:
        NotAuthenticatedError: It is not any more.
    """
    if token.is_usable(now):
        return
    what = "was revoked" if token.revoked_at is not None else "ran out"
    at = token.expires_at if token.revoked_at is None else token.revoked_at
    raise NotAuthenticatedError(
        f"the token {token.name!r} ({token.id}) {what} on {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC; "
        "ask the broker's operator for another one"
    )


def validate_token(name: str, tenant: str, role: Role, seconds: float) -> None:
    """Check what a token shall be.

    Raises:
        InvalidSpecError: It cannot be that.
    """
    if not _NAME.fullmatch(name):
        raise wrong_field("name", "is not 1 to 63 letters, digits, blanks and '._-'; say what the token is for")
    if role not in GIVEN_ROLES:
        raise wrong_field("role", f"is not one that tokens have; give {', '.join(GIVEN_ROLES)}")
    if (role is Role.OPERATOR) is bool(tenant):
        raise wrong_field("tenant", "belongs to the roles viewer and submitter, and an operator's token has none")
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise wrong_field("seconds", "a token is good for 60 s to 366 days; 90 days is the default")
