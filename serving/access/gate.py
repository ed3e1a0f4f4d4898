"""The gate lets a request for a model through, or refuses it. What it goes by is in a file that the agent keeps.

On the way of nearly all requests it is one look-up by the model's name, and with a key one more by the bytes that were
presented: keys that were found valid are remembered by them until the table changes. Wrong ones are not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tiercel.core.endpoint_access import KEY_KIND, EndpointAccess, EndpointKey, EndpointRule
from tiercel.core.errors import NotAuthenticatedError, NotFoundError, RateExceededError
from tiercel.core.rates import RateLimit
from tiercel.core.tokens import hash_token, parse_token
from tiercel.serving.access.callers import Caller
from tiercel.serving.access.file import AccessFileError, read_rules, stamp_of
from tiercel.serving.operators import Operators

_logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_REMEMBERED = 4096
"""Presented keys that are remembered at most."""
_PEERS = 1024
_WRONG_PER_SECOND = 5.0
_WRONG_BURST = 20.0
_SCHEME = b"bearer "
# An enum's members are looked up slowly, as requests go.
_PUBLIC, _TENANT, _KEY = EndpointAccess.PUBLIC, EndpointAccess.TENANT, EndpointAccess.KEY
REASONS = ("no_key", "key", "rate", "many_wrong_keys", "tenant", "overview", "damaged")
"""Why requests are refused, as metrics name it."""
_BURST_SECONDS = 1.0
"""What a key may ask at once is what it may ask in this time."""


class Grant:
    """A key that is good for an endpoint.

    Attributes:
        key: What is known of it.
        endpoint: What it is good for.
        limit: How often; None for as often as one likes.
        requests: How many came with it.
    """

    __slots__ = ("endpoint", "key", "limit", "requests")

    def __init__(self, key: EndpointKey, endpoint: str) -> None:
        self.key = key
        self.endpoint = endpoint
        self.limit: RateLimit | None = None
        self.requests = 0
        self.follow(key)

    def follow(self, key: EndpointKey) -> None:
        """Go by what is known of it now; what was counted stays counted."""
        self.key = key
        burst = max(1.0, key.per_second * _BURST_SECONDS)
        if not key.per_second:
            self.limit = None
        elif self.limit is None:
            self.limit = RateLimit(key.per_second, burst)
        else:
            self.limit.change(key.per_second, burst)


class Gate:
    """Knows who may ask what.

    Args:
        file: The table of rules; None where there is none, and everybody may ask everything.
        now: Seconds since the Unix epoch.

    Attributes:
        refusals: How many requests were refused, by reason.
    """

    def __init__(
        self,
        operators: Operators,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._operators = operators
        self._file = file
        self._clock = clock
        self._now = now
        self._rules: dict[str, EndpointRule] = {}
        self._known: dict[str, Grant] = {}  # by the hash of the key
        self._granted: dict[bytes, Grant] = {}  # by what was presented
        self._wrong: dict[str, RateLimit] = {}  # by peer
        self._is_shut = False
        self._stamp: tuple[int, int, int] | None = None
        self._next_end: float | None = None
        self._looking = asyncio.Lock()
        self.refusals: Counter[str] = Counter()
        if file is not None:
            self._stamp = stamp_of(file)
            self._take(_read(file), file)

    def check(self, caller: Caller, model: str, authorization: bytes) -> None:
        """Let a request for a model pass.

        Args:
            caller: Who asks.
            model: What it names.
            authorization: REST's header or gRPC's metadata ``authorization``; empty where nothing was sent.

        Raises:
            NotAuthenticatedError: It takes a key, and none that is good was presented.
            NotFoundError: It is not for this caller, who is not told whether it is there.
            RateExceededError: The key is presented more often than it is good for, or too many wrong ones are.
        """
        rule = self._rules.get(model)
        if rule is None:
            if self._file is None:
                return
            rule = self._rule_of(model)
            if rule is None:
                self._check_unlisted(caller, model, authorization)
                return
        access = rule.access
        if access is not _KEY:
            if access is _TENANT and not caller.is_local and caller.tenant != rule.tenant:
                self._refuse_but_operators("tenant", caller, model, authorization)
            return
        grant = self._granted.get(authorization)
        if grant is None or grant.endpoint != rule.endpoint:
            grant = self._admit(caller, model, rule, authorization)
            if grant is None:
                return
        grant.requests += 1
        limit = grant.limit
        if limit is not None and not limit.try_take(now := self._clock()):
            self.refusals["rate"] += 1
            raise RateExceededError(
                f"the key asks '{model}' more often than it is good for ({limit.per_second:g} a second here)",
                seconds=limit.seconds_until_next(now),
            )

    def sees(self, caller: Caller, model: str, authorization: bytes) -> bool:
        """Whether a list may name a model to a caller; nothing is counted."""
        if self._file is None or self._operators.knows(_text(authorization)):
            return True
        rule = self._rule_of(model)
        if rule is None:
            return caller.is_local and not self._is_shut
        if rule.access is _KEY:
            grant = self._find(authorization)
            return grant is not None and grant.endpoint == rule.endpoint
        return rule.access is _PUBLIC or caller.is_local or caller.tenant == rule.tenant

    def check_overview(self, caller: Caller, authorization: bytes) -> None:
        """Let what tells of all models pass.

        Raises:
            NotAuthenticatedError: Neither an operator asks, nor somebody on this machine.
        """
        if self._file is not None and not caller.is_local and not self._operators.knows(_text(authorization)):
            self.refusals["overview"] += 1
            raise NotAuthenticatedError("this tells of all models, and is for operators with their token")

    def uses(self) -> list[dict[str, object]]:
        """How many requests came with each key so far; those of keys that are gone are left out."""
        return [{"id": each.key.id, "requests": each.requests} for each in self._known.values() if each.requests]

    async def watch(self) -> None:
        """Follow the file, and end keys that run out, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the file if it is another one, and forget keys that have run out."""
        if self._file is None:
            return
        async with self._looking:  # who loads a model meanwhile waits for the rules of now
            stamp = stamp_of(self._file)
            if stamp != self._stamp:
                self._stamp = stamp
                self._take(await asyncio.to_thread(_read, self._file), self._file)
            elif self._next_end is not None and self._now() >= self._next_end:
                self._apply(self._rules.values())

    def _take(self, found: tuple[EndpointRule, ...] | AccessFileError, file: Path) -> None:
        was_shut, self._is_shut = self._is_shut, isinstance(found, AccessFileError)
        if isinstance(found, AccessFileError):
            if not was_shut:
                _logger.error("Nobody but operators may ask models until this is mended: %s", found)
            self._apply(())
            return
        if was_shut:
            _logger.info("%s can be read again, and models answer by it", file)
        self._apply(found)

    def _apply(self, rules: Iterable[EndpointRule]) -> None:
        self._rules = {rule.endpoint: rule for rule in rules}
        now = self._now()
        before = {grant.key.id: grant for grant in self._known.values()}
        self._known, self._next_end = {}, None
        for rule in self._rules.values():
            for key in rule.keys:
                if key.expires_at is not None:
                    if key.expires_at <= now:
                        continue
                    self._next_end = min(key.expires_at, self._next_end or key.expires_at)
                grant = before.get(key.id)
                if grant is None or grant.endpoint != rule.endpoint:
                    grant = Grant(key, rule.endpoint)
                else:
                    grant.follow(key)
                self._known[key.sha256] = grant
        self._granted.clear()

    def _check_unlisted(self, caller: Caller, model: str, authorization: bytes) -> None:
        """A model that no rule names: somebody on this machine has put it there, or there is none."""
        if self._is_shut:
            self._refuse_but_operators("damaged", caller, model, authorization, is_told=caller.is_local)
        elif not caller.is_local:
            self._refuse_but_operators("tenant", caller, model, authorization)

    def _rule_of(self, model: str) -> EndpointRule | None:
        """The rule for a model, which may be a variant of an endpoint: ``_ENDPOINT.VARIANT``."""
        rule = self._rules.get(model)
        if rule is None and model.startswith("_"):
            return self._rules.get(model[1:].rpartition(".")[0])
        return rule

    def _admit(self, caller: Caller, model: str, rule: EndpointRule, authorization: bytes) -> Grant | None:
        """The grant of a key that is presented for the first time; None for an operator."""
        grant = self._find(authorization)
        if grant is None or grant.endpoint != rule.endpoint:
            is_told = caller.is_local or caller.tenant == rule.tenant
            reason = "key" if authorization else "no_key"
            self._refuse_but_operators(reason, caller, model, authorization, is_told=is_told)
            return None
        if len(self._granted) >= _REMEMBERED:
            self._granted.clear()
        self._granted[authorization] = grant
        return grant

    def _find(self, authorization: bytes) -> Grant | None:
        """The grant of a key that is valid by now, whatever it is good for."""
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return None
        text = authorization[len(_SCHEME) :].decode("latin-1")
        grant = self._known.get(hash_token(text)) if parse_token(text, KEY_KIND) is not None else None
        if grant is None or (grant.key.expires_at is not None and grant.key.expires_at <= self._now()):
            return None
        return grant

    def _refuse_but_operators(
        self, reason: str, caller: Caller, model: str, authorization: bytes, *, is_told: bool = False
    ) -> None:
        """Refuse in the same words whether there is such a model or not, unless the caller may know; not operators."""
        if self._operators.knows(_text(authorization)):
            return
        if authorization:
            self._count_wrong(caller)
        self.refusals[reason] += 1
        if reason == "damaged" and is_told:
            raise NotAuthenticatedError(
                "who may ask which model is not known here now, so nobody may; the server's log says why"
            )
        if is_told:
            raise NotAuthenticatedError(
                f"'{model[:200]}' is asked with a key: send 'authorization: Bearer KEY' with one of its own that has "
                "not expired and was not revoked ('tiercel key create' makes them)"
            )
        raise NotFoundError(
            f"there is no model '{model[:200]}' here for you; one that takes keys wants 'authorization: Bearer KEY', "
            "and one of a tenant its certificate"
        )

    def _count_wrong(self, caller: Caller) -> None:
        """Whoever presents many wrong keys hears of it; keys that are good are let through all the same."""
        limit = self._wrong.get(caller.peer)
        if limit is None:
            if len(self._wrong) >= _PEERS:
                del self._wrong[next(iter(self._wrong))]
            limit = self._wrong[caller.peer] = RateLimit(_WRONG_PER_SECOND, _WRONG_BURST)
        now = self._clock()
        if not limit.try_take(now):
            self.refusals["many_wrong_keys"] += 1
            raise RateExceededError(
                "too many keys from this address were wrong; check the key", seconds=limit.seconds_until_next(now)
            )


def _read(file: Path) -> tuple[EndpointRule, ...] | AccessFileError:
    try:
        return read_rules(file)
    except AccessFileError as error:
        return error


def _text(authorization: bytes) -> str:
    return authorization.decode("latin-1")
