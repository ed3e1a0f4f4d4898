"""What waits, and says which calls run next; of a model, those that may run together. Pure: no clock, no I/O."""

from __future__ import annotations

import abc
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.serving.accounting.room import Room

# Batches that take at most so many seconds are handed over before a worker is free. For longer ones a turn of the event
# loop is nothing, and what they were made of could not be changed any more.
_RUN_AHEAD_SECONDS = 0.005


class Source(abc.ABC):
    """What waits for one model, or for an endpoint with variants: it says which calls run next, and on what."""

    __slots__ = ()

    room: Room | None = None  # what its calls take room of; None for the room that models share

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def add(self, call: Any) -> None:
        """Let a call wait."""

    @abc.abstractmethod
    def discard(self, call: Any) -> None:
        """A call waits no more, if it did."""

    @abc.abstractmethod
    def take(self, now: float, *, idle: int = 1, workers: int = 1, queue_delay: float = 0.0) -> list[Any]:
        """The next call and those that run with it on one version; they wait no more. None while none is to run.

        Args:
            now: Seconds of the clock of the calls.
            idle: Workers that are free; without one, what is taken is handed over before one is.
            workers: How many run batches at the same time.
            queue_delay: Seconds that a call may wait for company, where nothing is set for its model.
        """

    @abc.abstractmethod
    def seconds_to_next(self, now: float, queue_delay: float) -> float:
        """In how many seconds to ask again, if nothing happens before, for what was not given now; 0 for never."""

    def began(self, run: Any, now: float) -> None:  # noqa: B027 - not everyone wants to know
        """What was taken runs."""

    def ended(self, run: Any, now: float) -> None:  # noqa: B027
        """It does no more."""


class _Settings(Protocol):
    @property
    def max_queue_delay(self) -> float | None: ...


class _Session(Protocol):
    @property
    def queue_rows(self) -> Sequence[int]: ...
    @property
    def settings(self) -> _Settings: ...
    def estimate(self, rows: int) -> float: ...


class _Waiter(Protocol):
    """A call, as far as it matters to those that wait with it; see :class:`~tiercel.serving.dispatch.call.Call`."""

    @property
    def loaded(self) -> object: ...
    @property
    def session(self) -> _Session: ...
    @property
    def key(self) -> Any: ...
    @property
    def behind(self) -> float: ...
    @property
    def begin(self) -> float: ...
    @property
    def rank(self) -> float: ...
    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def deadline(self) -> float: ...


CallT = TypeVar("CallT", bound=_Waiter)


class WaitingCalls(Source, Generic[CallT]):
    """The :class:`Source` of a model: calls by what they may run together with, in order of rank within it.

    A group is one version and one key: the same inputs, the same shapes behind the first axis, the same outputs wanted.
    Within a group each priority has a line of its own, so that a line is in order as calls come.

    Attributes:
        rows: Rows of all that wait.
    """

    __slots__ = ("_calls", "_groups", "rows")

    def __init__(self) -> None:
        self._groups: dict[tuple[int, Any], dict[float, OrderedDict[CallT, None]]] = {}
        self._calls = 0
        self.rows = 0

    def __len__(self) -> int:
        return self._calls

    def add(self, call: CallT) -> None:
        """Let it wait."""
        lines = self._groups.setdefault((id(call.loaded), call.key), {})
        line = lines.get(call.behind)
        if line is None:
            line = lines[call.behind] = OrderedDict()
        line[call] = None
        self._calls += 1
        self.rows += call.rows

    def discard(self, call: CallT) -> None:
        """It waits no more, if it did."""
        key = (id(call.loaded), call.key)
        lines = self._groups.get(key, {})
        line = lines.get(call.behind)
        if line is None or call not in line:
            return
        del line[call]
        self._left(key, lines, call)

    def first(self) -> CallT | None:
        """The call that is next."""
        heads = [next(iter(line)) for lines in self._groups.values() for line in lines.values()]
        return min(heads, key=_rank) if heads else None

    def seconds_to_next(self, now: float, queue_delay: float) -> float:
        """See :meth:`Source.seconds_to_next`."""
        first = self.first()
        return 0.0 if first is None else max(0.0, self._unripe(first, now, queue_delay))

    def most_rows(self, first: CallT, workers: int = 1) -> int:
        """Rows of the next batch with ``first`` at most: more of them where each worker would find as many to run."""
        most = first.max_rows
        for rows in first.session.queue_rows:
            if rows * workers > self.rows:
                break
            most = rows
        return most

    def is_full(self, first: CallT) -> bool:
        """Whether as many rows wait as a batch with ``first`` usually has, so that there is no more to wait for."""
        return first.key is None or self.rows >= first.max_rows

    def take(self, now: float, *, idle: int = 1, workers: int = 1, queue_delay: float = 0.0) -> list[CallT]:
        """See :meth:`Source.take`; in order of rank.

        Before a worker is free that is a batch that is full, and so short that the way over the event loop counts.
        """
        first = self.first()
        if first is None or self._unripe(first, now, queue_delay) > 0:
            return []
        if not idle:
            soon = first.session.estimate(self.most_rows(first, workers)) <= _RUN_AHEAD_SECONDS
            if not (soon and self.is_full(first)):
                return []
        return self._batch(first, now, workers)

    def _batch(self, first: CallT, now: float, workers: int) -> list[CallT]:
        """It ends where one more call would make it miss the deadline of one that is in it."""
        estimate = first.session.estimate
        key = (id(first.loaded), first.key)
        lines = self._groups[key]
        batch: list[CallT] = []
        rows, tightest, call, most = 0, first.deadline, first, self.most_rows(first, workers)
        relaxed = now + estimate(most)
        while True:
            del lines[call.behind][call]
            self._left(key, lines, call)
            batch.append(call)
            rows += call.rows
            tightest = min(tightest, call.deadline)
            if call.key is None or rows >= most or not lines:
                return batch
            call = min((next(iter(line)) for line in lines.values()), key=_rank)
            together = rows + call.rows
            if together > most:
                return batch
            if min(tightest, call.deadline) < relaxed and min(tightest, call.deadline) < now + estimate(together):
                return batch

    def _unripe(self, first: CallT, now: float, queue_delay: float) -> float:
        """Seconds for which this call waits for company."""
        delay = first.session.settings.max_queue_delay
        if delay is None:
            delay = queue_delay
        if not delay or self.is_full(first):
            return 0.0
        return first.begin + delay - now

    def _left(self, key: tuple[int, Any], lines: dict[float, OrderedDict[CallT, None]], call: CallT) -> None:
        self._calls -= 1
        self.rows -= call.rows
        if not lines[call.behind]:
            del lines[call.behind]
            if not lines:
                del self._groups[key]


def _rank(call: _Waiter) -> float:
    return call.rank
