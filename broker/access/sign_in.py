"""Who is signed in at the dashboard: a browser holds a random name, and the broker the token that it stands for.

So that whoever calls with the name may do what the token may, for as long as that is good, and is called by its name in
the audit log.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from collections.abc import Callable

CODE_SECONDS = 120.0
SESSION_SECONDS = 7 * 86_400.0
MOST_CODES, MOST_CODES_OF_A_TOKEN = 1_000, 5
MOST_SESSIONS, MOST_SESSIONS_OF_A_TOKEN = 1_000, 20


@dataclass(frozen=True, slots=True)
class _Held:
    """What a secret stands for."""

    token: str = field(repr=False)
    ends_at: float


class _Names:
    """Random names of tokens, each for a while; the oldest goes for a new one when there are too many."""

    def __init__(self, seconds: float, most: int, most_of_a_token: int, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._most_of_a_token = most_of_a_token
        self._now = now
        self._held: dict[bytes, _Held] = {}

    def give(self, token: str) -> tuple[str, float]:
        """A new name, and when it ends."""
        self._held = {key: held for key, held in self._held.items() if held.ends_at > self._now()}
        of_token = [key for key, held in self._held.items() if held.token == token]
        if len(of_token) >= self._most_of_a_token:
            del self._held[of_token[0]]
        elif len(self._held) >= self._most:
            del self._held[next(iter(self._held))]
        name, held = secrets.token_urlsafe(32), _Held(token, self._now() + self._seconds)
        self._held[_digest(name)] = held
        return name, held.ends_at

    def find(self, name: str) -> str:
        """The token that a name stands for; empty for none."""
        held = self._held.get(_digest(name))
        return held.token if held is not None and held.ends_at > self._now() else ""

    def forget(self, name: str) -> None:
        """Let a name stand for nothing."""
        self._held.pop(_digest(name), None)


class SignIn:
    """Keeps codes of links, which are good once, and sessions.

    Args:
        now: Seconds since the Unix epoch.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._codes = _Names(CODE_SECONDS, MOST_CODES, MOST_CODES_OF_A_TOKEN, now)
        self._sessions = _Names(SESSION_SECONDS, MOST_SESSIONS, MOST_SESSIONS_OF_A_TOKEN, now)

    def make_code(self, token: str) -> tuple[str, float]:
        """A code that signs in whoever has it as the token's bearer; and when it ends, seconds since the Unix epoch."""
        return self._codes.give(token)

    def take_code(self, code: str) -> str:
        """The token that a code stands for, which it does no more.

        Raises:
            NotAuthenticatedError: It stands for none, or it was taken before.
        """
        token = self._codes.find(code)
        self._codes.forget(code)
        if not token:
            raise NotAuthenticatedError(
                "this link was used before, or it is too old; 'tiercel dashboard' makes another one"
            )
        return token

    def open(self, token: str) -> str:
        """A session of a token that is good; returns its name."""
        return self._sessions.give(token)[0]

    def token_of(self, session: str) -> str:
        """The token of a session; empty for one that is none, or none any more."""
        return self._sessions.find(session)

    def close(self, session: str) -> None:
        """End a session."""
        self._sessions.forget(session)


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
