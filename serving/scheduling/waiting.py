"""The requests of one endpoint that wait, in the order in which they are served.

Requests that can still be answered within the objective come first, in the order in which they are due. Those that
cannot are late: they are served while no other waits, the newest of them first, since those are worth most, and given
up once their answer is of no use. Without that rule a queue in overload answers everything too late; with it what is
too much is late and the rest is in time. It is the same for all schedulers, and the same code live and simulated.
"""

from __future__ import annotations

import bisect
import operator
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from tiercel.serving.scheduling.interface import BATCHES

RESERVE = 0.1
"""Fraction of the objective: runs take longer than expected at times, so who would be answered in it counts as late."""


class Waits(Protocol):
    """A request that waits."""

    # When it arrived, seconds of a steady clock; earlier by as much as it is due earlier than the objective says.
    since: float
    useless_at: float  # when an answer would be of no use any more
    rows: int  # how much room it takes in a batch


Item = TypeVar("Item", bound=Waits)


class Ages(NamedTuple):
    """How many rows wait and for how long, seconds; see :class:`~tiercel.serving.scheduling.interface.View`."""

    rows: int
    oldest: float
    p90: float
    median: float


class Waiting(Generic[Item]):
    """Requests that wait.

    Args:
        objective: Seconds of delay aimed at.
    """

    def __init__(self, objective: float) -> None:
        self.objective = objective
        self._in_time = objective * (1.0 - RESERVE)
        self._fresh: deque[Item] = deque()
        self._late: deque[Item] = deque()
        self._fresh_rows = 0
        self._late_rows = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._late)

    def copy(self) -> Waiting[Item]:
        """The same requests waiting, apart from these."""
        other: Waiting[Item] = Waiting(self.objective)
        other._fresh, other._late = self._fresh.copy(), self._late.copy()
        other._fresh_rows, other._late_rows = self._fresh_rows, self._late_rows
        return other

    def aimed_at(self, objective: float) -> Waiting[Item]:
        """The same requests waiting for another objective: which of them are late is seen anew."""
        other: Waiting[Item] = Waiting(objective)
        for item in sorted((*self._late, *self._fresh), key=operator.attrgetter("since")):
            other.add(item)
        return other

    def add(self, item: Item) -> None:
        """One more waits."""
        fresh = self._fresh
        if fresh and item.since < fresh[-1].since:
            bisect.insort(fresh, item, key=operator.attrgetter("since"))
        else:
            fresh.append(item)
        self._fresh_rows += item.rows

    def discard(self, item: Item) -> bool:
        """One does not wait any more; returns whether it did."""
        for queue in (self._fresh, self._late):
            if item in queue:
                queue.remove(item)
                self._count(queue, -item.rows)
                return True
        return False

    def sweep(self, now: float, quickest: float) -> list[Item]:
        """Tell late requests from those in time, and remove those whose answer would be of no use.

        Args:
            now: The time.
            quickest: Seconds of the shortest run there is.

        Returns:
            The requests that were removed.
        """
        removed: list[Item] = []
        fresh, late = self._fresh, self._late
        hopeless = now + quickest
        while fresh and hopeless - fresh[0].since > self._in_time:
            self._make_late(fresh.popleft())
        while late and late[0].useless_at < hopeless:
            item = late.popleft()
            self._late_rows -= item.rows
            removed.append(item)
        return removed

    def first(self) -> Item | None:
        """The request that is served next, or None."""
        if self._fresh:
            return self._fresh[0]
        return self._late[-1] if self._late else None

    def ages(self, now: float) -> Ages:
        """What waits to be served next; at least one must wait."""
        fresh = self._fresh
        if fresh:
            length = len(fresh)
            oldest = now - fresh[0].since
            if length == 1:
                return Ages(self._fresh_rows, oldest, oldest, oldest)
            return Ages(self._fresh_rows, oldest, now - fresh[length // 10].since, now - fresh[length // 2].since)
        late = self._late
        length = min(len(late), BATCHES[-1])
        return Ages(
            min(self._late_rows, BATCHES[-1]),
            now - late[-length].since,
            now - late[-length + length // 10].since,
            now - late[-length + length // 2].since,
        )

    def clear(self) -> list[Item]:
        """Remove all, and return them."""
        items = [*self._fresh, *self._late]
        self._fresh.clear()
        self._late.clear()
        self._fresh_rows = self._late_rows = 0
        return items

    def take(
        self,
        now: float,
        rows: int,
        seconds_for: Callable[[int], float],
        accepts: Callable[[Item], bool] | None = None,
        together: Callable[[Item, Item], bool] | None = None,
    ) -> list[Item]:
        """Remove the requests of one run: up to so many rows, at least one request.

        Requests that this run would answer too late are left, as late ones, if it can answer others in time.

        Args:
            now: The time.
            rows: The batch that was decided on.
            seconds_for: How long a run of so many rows takes.
            accepts: Whether a request may be answered by this run, which holds for :meth:`first`; else it stays where
                it is. All may if it is left out.
            together: Whether two requests may be in one batch; all may if it is left out.
        """
        if not self._fresh:
            return self._collect(self._late, rows, accepts, together, newest_first=True)
        self._leave_late(now, rows, seconds_for, accepts)
        return self._collect(self._fresh, rows, accepts, together, newest_first=False)

    def _leave_late(
        self, now: float, rows: int, seconds_for: Callable[[int], float], accepts: Callable[[Item], bool] | None
    ) -> None:
        fresh = self._fresh
        latest = now - self._in_time
        if fresh[0].since >= latest + seconds_for(min(rows, self._fresh_rows)):
            return
        ahead = 0
        for index, item in enumerate(fresh):
            in_time = item.since >= latest + seconds_for(max(1, min(rows, self._fresh_rows - ahead)))
            if in_time and (accepts is None or accepts(item)):
                for _ in range(index):
                    self._make_late(fresh.popleft())
                return
            ahead += item.rows

    def _make_late(self, item: Item) -> None:
        self._fresh_rows -= item.rows
        self._late_rows += item.rows
        self._late.append(item)

    def _collect(
        self,
        queue: deque[Item],
        rows: int,
        accepts: Callable[[Item], bool] | None,
        together: Callable[[Item, Item], bool] | None,
        *,
        newest_first: bool,
    ) -> list[Item]:
        pop, end = (queue.pop, -1) if newest_first else (queue.popleft, 0)
        first = pop()
        taken = [first]
        room = rows - first.rows
        while queue and room > 0:
            item = queue[end]
            if (accepts is not None and not accepts(item)) or (together is not None and not together(first, item)):
                taken += self._pick(queue, room, lambda one: _fits(one, first, accepts, together), newest_first)
                break
            if item.rows > room:
                break
            taken.append(pop())
            room -= item.rows
        self._count(queue, -sum([item.rows for item in taken]))
        return taken

    @staticmethod
    def _pick(queue: deque[Item], room: int, fits: Callable[[Item], bool], newest_first: bool) -> list[Item]:
        """Take those that fit from between others."""
        chosen: list[Item] = []
        for item in reversed(queue) if newest_first else iter(queue):
            if item.rows <= room and fits(item):
                chosen.append(item)
                room -= item.rows
                if room <= 0:
                    break
        for item in chosen:
            queue.remove(item)
        return chosen

    def _count(self, queue: deque[Item], rows: int) -> None:
        if queue is self._fresh:
            self._fresh_rows += rows
        else:
            self._late_rows += rows


def _fits(
    item: Item,
    first: Item,
    accepts: Callable[[Item], bool] | None,
    together: Callable[[Item, Item], bool] | None,
) -> bool:
    return (accepts is None or accepts(item)) and (together is None or together(first, item))
