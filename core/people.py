"""People who signed in elsewhere: who each is, as the token of their provider says it, for as long as that is good."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.core.roles import Role

MOST_REMEMBERED = 10_000
"""Tokens that need not be verified again; beyond that the one not shown for longest is forgotten, and verified anew."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who showed a token of the provider."""

    id: str  # names the person in the audit log; no secret
    role: Role  # what the person may call
    tenant: str  # whose things; empty for an operator
    key: str  # which key of the provider vouches for it
    expires_at: float  # from when on the token is good no more, in seconds since the Unix epoch


class KnownPeople:
    """Remembers whose tokens were verified, by their digests; a token itself is kept nowhere."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[bytes, Person] = OrderedDict()
        self._keys: frozenset[str] = frozenset()

    def find(self, text: str, now: float) -> Person | None:
        """Whose token somebody presents; None if it was not verified, or is to be verified anew.

        Args:
            text: What is presented; may be anything.
            now: Seconds since the Unix epoch.

        Raises:
            NotAuthenticatedError: It is good no more.
        """
        if not self._by_digest:
            return None
        digest = _digest(text)
        person = self._by_digest.get(digest)
        if person is None:
            return None
        self._by_digest.move_to_end(digest)
        self.check(person, now)
        return person

    def put(self, text: str, person: Person) -> None:
        """Remember whose a token is, which was just verified."""
        self._by_digest[_digest(text)] = person
        self._by_digest.move_to_end(_digest(text))
        if len(self._by_digest) > MOST_REMEMBERED:
            self._by_digest.popitem(last=False)

    def check(self, person: Person, now: float) -> None:
        """Do nothing while a person may go on.

        Raises:
            NotAuthenticatedError: The token ran out, or the provider's key is good no more.
        """
        if now >= person.expires_at:
            ran_out = datetime.fromtimestamp(person.expires_at, UTC)
            raise NotAuthenticatedError(f"the token ran out at {ran_out:%Y-%m-%d %H:%M:%S} UTC; sign in again")
        if person.key not in self._keys:
            raise NotAuthenticatedError(
                "the provider does not vouch any more for the key that the token is signed with; sign in again"
            )

    def trust(self, keys: Iterable[str]) -> None:
        """From now on these keys of the provider count; whoever was known by another is forgotten."""
        self._keys = frozenset(keys)
        gone = [digest for digest, person in self._by_digest.items() if person.key not in self._keys]
        for digest in gone:
            del self._by_digest[digest]


def _digest(text: str) -> bytes:
    # A header may hold anything; what cannot be encoded is nobody's token.
    return hashlib.sha256(text.encode(errors="replace")).digest()
