"""Hands requests on to nodes that can answer them, and once only.

Who gets a request that was handed on answers it, or says that it cannot.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, TiercelError, UnavailableError
from tiercel.core.routes import Backend
from tiercel.core.trust.names import node_name
from tiercel.serving.routing import choosing
from tiercel.serving.routing.calls import is_failure
from tiercel.serving.routing.choosing import Candidate, Load
from tiercel.serving.routing.connection import Answer, PeerLostError, Room
from tiercel.serving.routing.directory import Directory
from tiercel.serving.routing.pool import Credentials, NotSent, Peer, PeerLimits
from tiercel.serving.routing.silence import Patience
from tiercel.serving.routing.trials import Trials

_logger = logging.getLogger(__name__)

HOPS: Final = b"tiercel-hops"
"""Says that a request was handed on already: it is not handed on again."""
TIME_LEFT: Final = b"tiercel-timeout"
"""Microseconds in which the answer is of use."""
TOKEN: Final = b"tiercel-peer"
"""Proves between servers of one machine that one of them asks."""
ASKED_BY: Final = b"tiercel-for"
"""Who asks, in the words of :mod:`tiercel.serving.access.callers`; believed of another node alone."""
NOT_HERE: Final = b"tiercel-not-here"
"""In an answer: nothing was done, for the model is not here by now."""

OUTCOMES: Final = (
    "answered",
    "not_sent",
    "repeated",
    "silent",
    "not_here",
    "lost",
    "late",
    "full",
    "nobody",
    "given_up",
)
"""What becomes of attempts to hand on, as metrics name it."""

NOT_HERE_REASON: Final = "it does not have the model any more"
_TRIES: Final = 2
# Bytes of a request, of which nothing comes back while it is on its way: a slow line.
_SENT_PER_SECOND: Final = 10e6
_COMPLAIN_SECONDS: Final = 10.0
# Of so many nodes and models it is remembered how fast they are; of more, of those that were asked in the last minute.
_MANY_LOADS: Final = 1024
_FORGET_SECONDS: Final = 60.0
# Nodes that are asked at the same time where one of them has the answer.
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Handing:
    """A request as it is handed on."""

    model: str  # what it is for
    method: bytes  # in capital letters
    target: bytes  # path and query, percent-encoded
    headers: bytes  # whole lines that are handed on with it
    body: bytes | bytearray  # its bytes, whatever they are


class Relay:
    """Knows the other nodes, and asks them.

    Args:
        answer_bytes: Bytes of answers that may be held at a time.
        draw: Draws a number from 0 up to, and without, the one it is given.

    Attributes:
        outcomes: What became of attempts, see :data:`OUTCOMES`.
    """

    def __init__(
        self,
        directory: Directory,
        credentials: Credentials,
        limits: PeerLimits,
        answer_bytes: int,
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        self._directory = directory
        self._credentials = credentials
        self._limits = limits
        self._room = Room(answer_bytes)
        self._draw = draw
        self._peers: dict[tuple[str, str], Peer] = {}
        self._loads: dict[tuple[str, str], Load] = {}  # by node and model: a slow model makes no other one late
        self._complained: dict[str, float] = {}
        self._patience = Patience()
        self._trials = Trials(lambda place: place in directory.places, asyncio.get_running_loop().time)
        self.outcomes: Counter[str] = Counter()

    async def watch(self) -> None:
        """Find out for ever which of the nodes that were silent are back."""
        await self._trials.run()

    def answers(self, model: str) -> bool:
        """Whether another node is known to answer for a model."""
        return bool(self._directory.backends(model))

    def expected_seconds(self, model: str) -> float | None:
        """After how long another node would answer for a model; None where none does that goes on to."""
        now = asyncio.get_running_loop().time()
        usable = [
            choosing.cost(self._load(each.node_id, model), now)
            for each in self._directory.backends(model)
            if not each.draining and self._can_ask(each) and not self._is_silent(each)
        ]
        return min(usable, default=None)

    def is_sooner(self, model: str, seconds: float) -> bool:
        """Whether another node would answer for a model before one more request has its turn here.

        Args:
            model: Its name.
            seconds: For how long the request would wait here; 0 where it would not.
        """
        if not seconds:
            return False
        expected = self.expected_seconds(model)
        return expected is not None and expected < seconds

    @property
    def token(self) -> str:
        """What servers of this machine show each other; empty for none."""
        return self._directory.token

    @property
    def node_id(self) -> str:
        """Of this node; empty for unknown."""
        return self._directory.node_id

    @property
    def table_number(self) -> int:
        """Number of the table by which requests are handed on."""
        return self._directory.number

    def believes(self, node: str) -> bool:
        """Whether a node is believed in who asked it: one that is of the cluster still."""
        return node in self._directory.believed

    async def ask(self, handing: Handing, deadline: float, *, is_here: bool = False) -> Answer:
        """Have another node answer a request.

        One that says nothing for longer than its answers take is left, once, for another one that has the model.

        Args:
            handing: The request.
            deadline: When the answer is of no use any more, seconds of the event loop's clock.
            is_here: Whether it can be answered here as well.

        Raises:
            UnavailableError: Nobody does.
            DeadlineExceededError: Not in time.
            CapacityExceededError: As much is under way as may be.
        """
        tried: list[Backend] = []
        reason = "no address of its node can be reached from here"
        is_again = False
        patience = self._patience.seconds(handing.model) + len(handing.body) / _SENT_PER_SECOND
        for _ in range(_TRIES):
            backend = self._choose(handing.model, tried) or (tried[-1] if is_again else None)
            if backend is None:
                break
            others = self._usable(handing.model, [*tried, backend])
            may_leave = not tried and (is_here or not all(map(self._is_silent, others)))
            outcome = await self._try(
                backend, handing, deadline, patience, may_leave=may_leave, is_again=backend in tried
            )
            if isinstance(outcome, Answer):
                return outcome
            tried.append(backend)
            reason, is_again = outcome.reason, not outcome.is_certain and not outcome.is_silent
            if reason == NOT_HERE_REASON:  # what was just told may not have been read yet
                self._directory.look()
        self.outcomes["nobody"] += 1
        nodes = ", ".join(sorted({each.node_id for each in tried or self._directory.backends(handing.model)}))
        raise UnavailableError(
            f"'{handing.model}' answers on node {nodes[:200]}, which cannot be asked now: {reason[:200]}; try again"
        )

    async def ask_each(self, model: str, handing: Handing, seconds: float) -> list[Answer]:
        """What the other nodes answer that have a model, as far as they do in time; at most 16 of them are asked.

        Args:
            model: Its name.
            handing: The request; another ``model`` in it, so that nobody is taken to answer requests of it so fast.
            seconds: In which all of it ends.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        usable = [each for each in self._usable(model, []) if not self._is_silent(each)]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._answer_of(each, handing, deadline)) for each in usable[:_MOST_AT_ONCE]]
        return [answer for each in asked if (answer := each.result()) is not None]

    async def _answer_of(self, backend: Backend, handing: Handing, deadline: float) -> Answer | None:
        allowed = deadline - asyncio.get_running_loop().time()
        try:
            answer = await self._try(backend, handing, deadline, allowed, may_leave=True, is_again=False)
        except TiercelError:
            return None
        return answer if isinstance(answer, Answer) else None

    async def _try(
        self, backend: Backend, handing: Handing, deadline: float, patience: float, *, may_leave: bool, is_again: bool
    ) -> Answer | NotSent:
        """Ask one node; what it did not take, or says nothing to, may go to another one."""
        loop = asyncio.get_running_loop()
        began, node = loop.time(), backend.node_id
        allowed = deadline - began
        peer = self._peer(backend)
        self._begin(node, handing.model)
        outcome, is_good = "given_up", False
        peer.hearing.sent(began)
        try:
            head = self._head(handing, peer, allowed)
            sending = peer.send(head, handing.body, deadline, is_again=is_again)
            answer = await _heard(
                sending, peer, patience, None if may_leave else partial(self._trials.pass_over, peer, backend.place)
            )
            if isinstance(answer, Answer) and NOT_HERE in answer.headers:
                answer = NotSent(NOT_HERE_REASON, is_certain=True)
                outcome = "not_here"
            elif isinstance(answer, NotSent):
                outcome = "silent" if answer.is_silent else "not_sent" if answer.is_certain else "repeated"
                self._complain(backend, answer.reason)
            else:
                outcome = "answered"
                is_good = not is_failure(answer.status, answer.headers)
        except PeerLostError as error:
            outcome = "lost"
            self._complain(backend, error.reason)
            raise UnavailableError(
                f"node {node}, which answers for '{handing.model}', was lost while it answered ({error.reason[:200]}); "
                "try again"
            ) from error
        except DeadlineExceededError:
            outcome = "late"
            raise
        except CapacityExceededError:
            outcome = "full"
            raise
        else:
            return answer
        finally:
            self.outcomes[outcome] += 1
            self._note(node, handing.model, outcome, allowed, loop.time() - began, is_good=is_good)
            if outcome == "answered":
                self._patience.answered(handing.model, loop.time() - began)
            elif peer.hearing.quiet_seconds(loop.time()) >= patience:
                self._patience.waited(handing.model, loop.time() - began)
                self._trials.pass_over(peer, backend.place)
            peer.hearing.ended(loop.time())

    def _begin(self, node: str, model: str) -> None:
        """A request is under way to a node."""
        now = asyncio.get_running_loop().time()
        if (node, model) not in self._loads and len(self._loads) >= _MANY_LOADS:
            self._loads = {
                key: load
                for key, load in self._loads.items()
                if load.in_flight or (load.measured_at is not None and now - load.measured_at < _FORGET_SECONDS)
            }
        load = self._load(node, model)
        self._loads[node, model] = replace(load, in_flight=load.in_flight + 1)

    def _note(self, node: str, model: str, outcome: str, allowed: float, took: float, *, is_good: bool) -> None:
        """Learn from an attempt how fast a node is; one that fails fast is not fast."""
        load = self._load(node, model)
        load = replace(load, in_flight=load.in_flight - 1)
        now = asyncio.get_running_loop().time()
        if is_good:
            load = choosing.answered(load, took, now)
        elif outcome in {"answered", "not_sent", "repeated", "lost", "late", "not_here"}:
            load = choosing.failed(load, allowed, now)
        self._loads[node, model] = load

    def _load(self, node: str, model: str) -> Load:
        return self._loads.get((node, model), Load())

    def _choose(self, model: str, tried: list[Backend]) -> Backend | None:
        usable = self._usable(model, tried)
        usable = [each for each in usable if not self._is_silent(each)] or usable
        if not usable:
            return None
        candidates = [Candidate(self._load(each.node_id, model), each.draining) for each in usable]
        return usable[choosing.choose(candidates, asyncio.get_running_loop().time(), self._draw)]

    def _usable(self, model: str, tried: list[Backend]) -> list[Backend]:
        return [each for each in self._directory.backends(model) if each not in tried and self._can_ask(each)]

    def _can_ask(self, backend: Backend) -> bool:
        return bool(backend.http) or self._credentials.are_there

    def _is_silent(self, backend: Backend) -> bool:
        peer = self._peers.get(backend.place)
        return peer is not None and peer.hearing.is_silent

    def _peer(self, backend: Backend) -> Peer:
        key = backend.place
        address = key[1]
        peer = self._peers.get(key)
        if peer is None:
            self._forget_others()
            name = "" if backend.http else node_name(backend.node_id)
            peer = self._peers[key] = Peer(address, name, self._credentials, self._limits, self._room)
        return peer

    def _forget_others(self) -> None:
        """Let go of nodes that answer for nothing any more; called where another one comes, so there are not many."""
        nodes = self._directory.nodes
        for key in [key for key, peer in self._peers.items() if key[0] not in nodes and not peer.in_flight]:
            self._peers.pop(key).close()
        self._loads = {key: load for key, load in self._loads.items() if key[0] in nodes or load.in_flight}
        self._complained = {node: at for node, at in self._complained.items() if node in nodes}

    def _head(self, handing: Handing, peer: Peer, allowed: float) -> bytes:
        token = b"" if peer.is_encrypted else self.token.encode()
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b: 1\r\n%b: %d\r\n%bContent-Length: %d\r\n\r\n" % (
            handing.method,
            handing.target,
            peer.address.encode(),
            handing.headers,
            HOPS,
            TIME_LEFT,
            _rounded(allowed),
            b"%b: %b\r\n" % (TOKEN, token) if token else b"",
            len(handing.body),
        )

    def _complain(self, backend: Backend, reason: str) -> None:
        """A line in the log, of each node now and then."""
        now = asyncio.get_running_loop().time()
        if now - self._complained.get(backend.node_id, -_COMPLAIN_SECONDS) >= _COMPLAIN_SECONDS:
            self._complained[backend.node_id] = now
            address = backend.http or backend.https
            what = (backend.node_id, address, reason)
            _logger.warning("Node %s at %s did not answer what was handed on: %s", *what, extra={"node": what[0]})

    def close(self) -> None:
        """Let go of all connections."""
        for peer in self._peers.values():
            peer.close()


async def _heard(
    sending: Coroutine[None, None, Answer | NotSent],
    peer: Peer,
    patience: float,
    instead: Callable[[], None] | None,
) -> Answer | NotSent:
    """What comes back; where for so many seconds nothing at all does from there, what is done instead of leaving it."""
    loop = asyncio.get_running_loop()

    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        left = patience - peer.hearing.quiet_seconds(loop.time())
        if left > 0:
            timer = loop.call_later(left, look)
        elif instead is not None:
            instead()
        else:
            limit.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as limit:
            look()
            return await sending
    except TimeoutError:
        return NotSent(f"nothing came back for {patience:.1f} s", is_certain=False, is_silent=True)
    finally:
        if timer is not None:
            timer.cancel()


def _rounded(seconds: float) -> int:
    """Microseconds, rounded down to two digits: heads that are the same are known at the other end."""
    exact = max(1, int(seconds * 1e6))
    step = 10 ** max(0, len(str(exact)) - 2)
    return int(exact // step * step)
