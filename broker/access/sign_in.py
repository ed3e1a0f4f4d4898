"""Who is signed in at the dashboard: a browser holds a random name, and the broker the token that it stands for.

So that whoever calls with the name may do what the token may, for as long as that is good, and is called by its name in
the audit log.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.broker.store.sessions import KeptSession
from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiercel.broker.store.sealing import Sealer
    from tiercel.broker.store.sessions import SessionStore

CODE_SECONDS = 120.0
SESSION_SECONDS = 7 * 86_400.0
MOST_CODES, MOST_CODES_OF_A_TOKEN = 1_000, 5
MOST_SESSIONS, MOST_SESSIONS_OF_A_TOKEN = 1_000, 20
# Secrets are sealed as somebody's; no tenant has this name.
_NOBODY = ""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a secret stands for."""

    token: str = field(repr=False)
    ends_at: float


class _Names:
    """Random names of tokens, by their hashes, each for a while; the oldest goes where there are too many."""

    def __init__(self, seconds: float, most: int, most_of_a_token: int, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._most_of_a_token = most_of_a_token
        self._now = now
        self.held: dict[str, _Held] = {}

    def give(self, token: str) -> tuple[str, _Held, list[str]]:
        """A new name, what it stands for, and the hashes of those that went."""
        gone = [key for key, held in self.held.items() if held.ends_at <= self._now()]
        of_token = [key for key, held in self.held.items() if held.token == token and key not in gone]
        if len(of_token) >= self._most_of_a_token:
            gone.append(of_token[0])
        elif len(self.held) - len(gone) >= self._most:
            gone.append(next(key for key in self.held if key not in gone))
        for key in gone:
            del self.held[key]
        name, held = secrets.token_urlsafe(32), _Held(token, self._now() + self._seconds)
        self.held[_hash(name)] = held
        return name, held, gone

    def find(self, name: str) -> str:
        """The token that a name stands for; empty for none."""
        held = self.held.get(_hash(name))
        return held.token if held is not None and held.ends_at > self._now() else ""

    def forget(self, name: str) -> bool:
        """Let a name stand for nothing; whether it stood for something."""
        return self.held.pop(_hash(name), None) is not None


class SignIn:
    """Keeps codes of links, which are good once, and sessions, which outlive the broker.

    Args:
        now: Seconds since the Unix epoch.
    """

    def __init__(self, store: SessionStore, sealer: Sealer, now: Callable[[], float]) -> None:
        self._store = store
        self._sealer = sealer
        self._codes = _Names(CODE_SECONDS, MOST_CODES, MOST_CODES_OF_A_TOKEN, now)
        self._sessions = _Names(SESSION_SECONDS, MOST_SESSIONS, MOST_SESSIONS_OF_A_TOKEN, now)

    async def start(self) -> None:
        """Read what is kept; what the key of now does not open is no session any more."""
        for kept in await self._store.load():
            with contextlib.suppress(InvalidSpecError):
                token = self._sealer.unseal(_NOBODY, kept.sha256, kept.sealed)
                self._sessions.held[kept.sha256] = _Held(token, kept.ends_at)

    def make_code(self, token: str) -> tuple[str, float]:
        """A code that signs in whoever has it as the token's bearer; and when it ends, seconds since the Unix epoch."""
        code, held, _ = self._codes.give(token)
        return code, held.ends_at

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

    async def open(self, token: str) -> str:
        """A session of a token that is good; returns its name.

        Raises:
            CannotWriteError: It cannot be kept.
        """
        name, held, gone = self._sessions.give(token)
        sha256 = _hash(name)
        sealed = self._sealer.seal(_NOBODY, sha256, token)
        try:
            await self._store.add(KeptSession(sha256, sealed, held.ends_at), gone)
        except BaseException:
            self._sessions.forget(name)
            raise
        return name

    def token_of(self, session: str) -> str:
        """The token of a session; empty for one that is none, or none any more."""
        return self._sessions.find(session)

    async def close(self, session: str) -> None:
        """End a session."""
        if self._sessions.forget(session):
            await self._store.remove(_hash(session))


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
