"""What waits to be published: bounded, and such that state is never lost."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from tiercel.broker.progress.topics import Message


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """How much a buffer keeps."""

    waiting: int = 10_000  # messages that wait to be sent
    # Retained topics whose latest message is remembered; beyond it the one longest unchanged is forgotten.
    topics: int = 10_000
    # What the messages that wait may have together, and what those that are remembered may have.
    size_bytes: int = 16 * 1024**2


class Buffer:
    """A queue of messages and the latest message of each retained topic.

    When the queue is full the oldest progress goes. When it is full of state, the queue is emptied and every retained
    topic is marked for being sent again: what is newest is told, what it replaces is not.
    """

    def __init__(self, limits: BufferLimits | None = None) -> None:
        self._limits = limits or BufferLimits()
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._latest_bytes = 0
        self._latest: OrderedDict[str, Message] = OrderedDict()
        self._must_resend = False

    def add(self, message: Message) -> None:
        """Take in a message; never refuses one."""
        if message.retain:
            self._remember(message)
        self._waiting.append(message)
        self._waiting_bytes += _size(message)
        while len(self._waiting) > self._limits.waiting or self._waiting_bytes > self._limits.size_bytes:
            self._make_room()

    def take(self) -> Message | None:
        """The next message to send, or None."""
        if self._must_resend:
            self._requeue_state()
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._waiting_bytes -= _size(message)
        return message

    def resend_state(self) -> None:
        """Queue the latest message of every retained topic before the progress that waits.

        Older state that waits is left out: the latest message of its topic says all that a subscriber can use.
        """
        self._must_resend = True

    def _remember(self, message: Message) -> None:
        before = self._latest.pop(message.topic, None)
        self._latest_bytes += _size(message) - (_size(before) if before is not None else 0)
        self._latest[message.topic] = message
        while len(self._latest) > self._limits.topics or self._latest_bytes > self._limits.size_bytes:
            _, forgotten = self._latest.popitem(last=False)
            self._latest_bytes -= _size(forgotten)

    def _make_room(self) -> None:
        for index, message in enumerate(self._waiting):
            if not message.retain:
                del self._waiting[index]
                self._waiting_bytes -= _size(message)
                return
        self._waiting.clear()
        self._waiting_bytes = 0
        self._must_resend = True

    def _requeue_state(self) -> None:
        self._must_resend = False
        progress = [message for message in self._waiting if not message.retain]
        self._waiting = deque([*self._latest.values(), *progress])
        self._waiting_bytes = sum(map(_size, self._waiting))


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload)
