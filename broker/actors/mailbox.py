"""The actor: a bounded mailbox, one task, state that nobody else touches."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

from tiercel.broker.domain.errors import OverloadedError, TiercelError

logger = logging.getLogger(__name__)

MessageT = TypeVar("MessageT")

# Far more than a healthy actor ever has waiting; reaching it means that it is stuck.
CAPACITY = 2_000
# Messages in a row that an actor may fail on before the whole broker counts as broken.
MAX_FAILURES_IN_A_ROW = 20


class ActorFailedError(TiercelError):
    """An actor failed on one message after another: a defect of Tiercel."""

    code = "internal"


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """How an actor is doing: messages waiting, handled and failed on."""

    waiting: int
    handled: int
    failed: int


class Actor(ABC, Generic[MessageT]):
    """Handles its messages one after another.

    A message that it fails on is logged and dropped. Since actors change their state last, after everything that can
    fail, the state is then the one before the message.

    Args:
        name: For logs.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._mailbox: asyncio.Queue[MessageT | None] = asyncio.Queue(CAPACITY)
        self._handled = 0
        self._failed = 0

    def tell_nowait(self, message: MessageT) -> None:
        """Leave a message.

        Raises:
            OverloadedError: The mailbox is full.
        """
        try:
            self._mailbox.put_nowait(message)
        except asyncio.QueueFull:
            raise OverloadedError(f"{self.name} has {CAPACITY} messages waiting; try again later") from None

    async def tell(self, message: MessageT) -> None:
        """Leave a message, waiting for room: for whoever can pass the pressure on, such as a stream."""
        await self._mailbox.put(message)

    def finish(self) -> None:
        """Let the actor end once it has handled what is in its mailbox."""
        self._mailbox.put_nowait(None)

    def statistics(self) -> ActorStatistics:
        """How it is doing."""
        return ActorStatistics(self._mailbox.qsize(), self._handled, self._failed)

    async def run(self) -> None:
        """Handle messages until :meth:`finish`.

        Raises:
            ActorFailedError: It failed on too many messages in a row.
        """
        failures_in_a_row = 0
        while (message := await self._mailbox.get()) is not None:
            try:
                await self.receive(message)
                self._handled += 1
                failures_in_a_row = 0
            except Exception as error:
                self._failed += 1
                failures_in_a_row += 1
                logger.exception("%s could not handle %s", self.name, type(message).__name__)
                if failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                    raise ActorFailedError(f"{self.name} failed on {failures_in_a_row} messages in a row") from error

    @abstractmethod
    async def receive(self, message: MessageT) -> None:
        """Handle one message; state is changed last, after everything that can fail."""
