"""The actor: a bounded mailbox, one task, state that nobody else touches."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tiercel.core.errors import (
    CannotWriteError,
    InvalidSpecError,
    NotFoundError,
    OverloadedError,
    TiercelError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

logger = logging.getLogger(__name__)

MessageT = TypeVar("MessageT")

# Far more than a healthy actor ever has waiting; reaching it means that it is stuck.
CAPACITY = 10_000
# Of these, what those may leave who wait for room. Whatever they send, actors still have room to tell each other.
ROOM_FOR_STREAMS = 1_000
# Messages that an actor takes in at once, where they go together: as many as the journal writes at once.
TOGETHER = 100
# Messages in a row that an actor may fail on before the whole broker counts as broken.
MAX_FAILURES_IN_A_ROW = 20
CALL_SECONDS = 30.0


class ActorFailedError(TiercelError):
    """An actor cannot go on without contradicting the store: the broker has to start again from there."""

    code = "internal"


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """How an actor is doing: messages waiting, handled and failed on."""

    waiting: int
    handled: int
    failed: int


@dataclass(frozen=True, slots=True)
class _Envelope(Generic[MessageT]):
    """A message in the mailbox; without one it ends the actor."""

    message: MessageT | None = None
    key: Hashable | None = None  # kept beside the mailbox, the latest one only
    took_room: bool = False
    done: asyncio.Future[None] | None = None
    handled: Callable[[], None] | None = None

    def answer(self, error: Exception | None = None) -> None:
        """Tell who waits for it how it went."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def let_go(self) -> None:
        """Nobody has to say it again."""
        if self.handled is not None:
            self.handled()


class Actor(ABC, Generic[MessageT]):
    """Handles its messages one after another.

    A message that it fails on is logged and dropped. Since actors change their state last, after everything that can
    fail, the state is then the one before the message. What can fail after that ends the broker
    (:class:`ActorFailedError`): its state on disk is right, the one in memory is not.

    Args:
        name: For logs.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._mailbox: asyncio.Queue[_Envelope[MessageT]] = asyncio.Queue(CAPACITY)
        self._next: _Envelope[MessageT] | None = None  # taken out of the mailbox to see whether it goes with another
        self._latest: dict[Hashable, MessageT] = {}
        self._room = asyncio.Semaphore(ROOM_FOR_STREAMS)
        self._waiting_calls: set[asyncio.Future[None]] = set()
        self._finished = False
        self._handled = 0
        self._failed = 0

    def send_nowait(self, message: MessageT) -> None:
        """Leave a message.

        Raises:
            OverloadedError: The mailbox is full.
        """
        self._put(_Envelope(message))

    def send_latest_nowait(self, key: Hashable, message: MessageT) -> None:
        """Leave a message in place of an earlier one with the same key that is still waiting.

        Raises:
            OverloadedError: The mailbox is full.
        """
        if key not in self._latest:
            self._put(_Envelope(key=key))
        self._latest[key] = message

    async def send(self, message: MessageT, handled: Callable[[], None] | None = None) -> None:
        """Leave a message, waiting for room: for whoever can pass the pressure on, such as a stream.

        Args:
            message: The message.
            handled: Called once the actor is done with it, however that went; may not fail or block.
        """
        await self._room.acquire()
        try:
            self._put(_Envelope(message, took_room=True, handled=handled))
        except OverloadedError:
            self._room.release()
            raise

    async def call(self, message: MessageT) -> None:
        """Leave a message and wait until it was handled; nobody handles it any more once that is given up.

        Raises:
            OverloadedError: The mailbox is full.
            UnavailableError: It was not handled in time; if it was begun with, it may still be.
            Exception: What the actor failed on.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(_Envelope(message, done=done))
        self._waiting_calls.add(done)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await done
        except TimeoutError:
            raise UnavailableError(f"{self.name} did not answer within {CALL_SECONDS:g} s; try again later") from None
        finally:
            self._waiting_calls.discard(done)

    def refuse_calls(self, error: TiercelError) -> None:
        """Answer whoever waits for a message that was not begun with: it is not handled."""
        for done in self._waiting_calls:
            if not done.done():
                done.set_exception(error)

    def finish(self) -> None:
        """Let the actor end once it has handled what is in its mailbox; what is left afterwards is dropped."""
        self._finished = True
        if self._is_empty:  # it sleeps and would not notice
            self._mailbox.put_nowait(_Envelope())

    async def wait_idle(self) -> None:
        """Wait until nothing is left to handle.

        Raises:
            UnavailableError: It takes too long.
        """
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._mailbox.join()
        except TimeoutError:
            raise UnavailableError(f"{self.name} is busy for more than {CALL_SECONDS:g} s; try again later") from None

    def statistics(self) -> ActorStatistics:
        """How it is doing."""
        return ActorStatistics(self._mailbox.qsize() + (self._next is not None), self._handled, self._failed)

    async def run(self) -> None:
        """Handle messages until :meth:`finish`.

        Raises:
            ActorFailedError: It failed on too many messages in a row, or cannot go on.
        """
        failures_in_a_row = 0
        while not (self._finished and self._is_empty):
            envelopes = await self._take()
            try:
                failed = await self._handle(envelopes)
            finally:
                for _ in envelopes:
                    self._mailbox.task_done()
            failures_in_a_row = failures_in_a_row + 1 if failed else 0
            if failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                raise ActorFailedError(f"{self.name} failed on {failures_in_a_row} messages in a row")

    @abstractmethod
    async def receive(self, message: MessageT) -> None:
        """Handle one message; state is changed last, after everything that can fail."""

    def goes_with(self, message: MessageT, following: MessageT) -> bool:
        """Whether two messages that wait behind each other may be handled at once (:meth:`receive_all`)."""
        return False

    async def receive_all(self, messages: Sequence[MessageT]) -> None:
        """Handle messages that go together, or one; where that fails they are handled one by one."""
        for message in messages:
            await self.receive(message)

    @property
    def _is_empty(self) -> bool:
        return self._next is None and self._mailbox.empty()

    def _put(self, envelope: _Envelope[MessageT]) -> None:
        if self._finished and self._is_empty:  # it has ended, nobody would ever look
            if envelope.done is not None:
                envelope.done.set_result(None)
            if envelope.took_room:
                self._room.release()
            envelope.let_go()
            return
        try:
            self._mailbox.put_nowait(envelope)
        except asyncio.QueueFull:
            raise OverloadedError(f"{self.name} has {CAPACITY} messages waiting; try again later") from None

    async def _take(self) -> list[_Envelope[MessageT]]:
        """What is handled next: an envelope, with those behind it that go with it."""
        first = self._next or await self._mailbox.get()
        self._next = None
        taken = [first]
        while len(taken) < TOGETHER and self._next is None and not self._mailbox.empty():
            following = self._mailbox.get_nowait()
            if self._go_together(taken[-1], following):
                taken.append(following)
            else:
                self._next = following
        for envelope in taken:
            if envelope.took_room:
                self._room.release()
        return taken

    def _go_together(self, one: _Envelope[MessageT], following: _Envelope[MessageT]) -> bool:
        if one.message is None or following.message is None or one.done is not None or following.done is not None:
            return False
        return self.goes_with(one.message, following.message)

    async def _handle(self, envelopes: Sequence[_Envelope[MessageT]]) -> bool:
        """Handle what is in envelopes; returns whether that failed."""
        messages = [message for envelope in envelopes if (message := self._message_in(envelope)) is not None]
        if not messages:
            return False
        try:
            await self.receive_all(messages)
        except CannotWriteError as error:  # refused for the time being, which is no failure of the actor
            for envelope in envelopes:
                envelope.answer(error)
            return False
        except ActorFailedError as error:
            self._failed += 1
            for envelope in envelopes:
                envelope.answer(error)
            raise
        except Exception as error:
            if len(envelopes) > 1:
                return all([await self._handle([envelope]) for envelope in envelopes])
            envelopes[0].let_go()
            envelopes[0].answer(error)
            # What was right when it was asked for: somebody else was first.
            if envelopes[0].done is not None and isinstance(error, (InvalidSpecError, NotFoundError)):
                return False
            self._failed += 1
            logger.exception("%s could not handle %s", self.name, type(messages[0]).__name__)
            return True
        self._handled += len(messages)
        for envelope in envelopes:
            envelope.let_go()
            envelope.answer()
        return False

    def _message_in(self, envelope: _Envelope[MessageT]) -> MessageT | None:
        """None where nobody waits for it any more."""
        message = self._latest.pop(envelope.key) if envelope.key is not None else envelope.message
        if envelope.done is None:
            return message
        self._waiting_calls.discard(envelope.done)
        return None if envelope.done.done() else message


def send(actor: Actor[MessageT], message: MessageT) -> None:
    """Leave an actor a message; raises ActorFailedError where it does not take any more."""
    try:
        actor.send_nowait(message)
    except OverloadedError as error:
        raise ActorFailedError(f"{actor.name} is stuck: {error.message}") from error


def send_latest(actor: Actor[MessageT], key: Hashable, message: MessageT) -> None:
    """The same for a message that takes the place of an earlier one of its key, which was not read yet."""
    try:
        actor.send_latest_nowait(key, message)
    except OverloadedError as error:
        raise ActorFailedError(f"{actor.name} is stuck: {error.message}") from error
