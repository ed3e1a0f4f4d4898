"""The calls of one model that wait, and which of them run next, together. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Session(Protocol):
    @property
    def queue_rows(self) -> Sequence[int]: ...


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
    def rank(self) -> float: ...
    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def deadline(self) -> float: ...


CallT = TypeVar("CallT", bound=_Waiter)


class WaitingCalls(Generic[CallT]):
    """Calls by what they may run together with, in order of rank within it.

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

    def take(self, first: CallT, now: float, estimate: Callable[[int], float], workers: int = 1) -> list[CallT]:
        """The call that is next and those that run with it, in order of rank; they wait no more.

        Args:
            first: What :meth:`first` said.
            now: The clock of the calls' deadlines.
            estimate: Seconds that a batch of so many rows takes. The batch ends where one more call would make it miss
                the deadline of one that is in it.
            workers: How many run batches at the same time.
        """
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

    def _left(self, key: tuple[int, Any], lines: dict[float, OrderedDict[CallT, None]], call: CallT) -> None:
        self._calls -= 1
        self.rows -= call.rows
        if not lines[call.behind]:
            del lines[call.behind]
            if not lines:
                del self._groups[key]


def _rank(call: _Waiter) -> float:
    return call.rank
