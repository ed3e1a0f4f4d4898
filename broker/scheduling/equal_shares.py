"""What would happen if nobody scheduled anything: a virtual cluster beside the real one, with equal shares.

It has the same nodes. Each new job goes, by submission, to the node with the fewest jobs per core that has the memory,
and all jobs of a node share it equally. It says when each job would be over there, as the virtual time of fair queueing
does; Friedman and Henderson's fair sojourn protocol orders jobs by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace


@dataclass(frozen=True, slots=True)
class Place:
    """What a node has for jobs."""

    cores: float  # cores
    memory_bytes: int  # memory


@dataclass(frozen=True, slots=True)
class Account:
    """A job in the virtual cluster."""

    submitted_at: float  # when it came, seconds since the Unix epoch
    cores: float  # cores that it can use, beside an equal share of the accelerators that it needs
    total: float  # CPU seconds that it needs altogether, as far as one can tell; what it took, once it is really over
    memory_bytes: int = 0  # memory that it holds while it is somewhere
    attained: float = 0.0  # CPU seconds of work that equal sharing would have let it do by now
    node_id: str = ""  # where it is; empty while it waits for memory
    over_at: float | None = None  # when it was over there, seconds since the Unix epoch, or None while it is not


@dataclass(frozen=True, slots=True)
class FairClock:
    """The virtual cluster."""

    at: float | None = None  # when it was looked at last, seconds since the Unix epoch, or None
    # Jobs that are there, by id: those that are really there, and others that are only virtually left.
    accounts: Mapping[str, Account] = field(default_factory=dict)


def advanced(clock: FairClock, now: float, places: Mapping[str, Place], jobs: Mapping[str, Account]) -> FairClock:
    """The virtual cluster now.

    Args:
        clock: The cluster as it was.
        now: Seconds since the Unix epoch.
        places: The nodes.
        jobs: Those that are really there, with what they need altogether by the latest estimate, by submission; what
            they attained and where they are is not read.
    """
    seconds = max(now - clock.at, 0.0) if clock.at is not None else 0.0
    widths: dict[str, float] = {}
    for account in clock.accounts.values():
        if account.over_at is None:
            widths[account.node_id] = widths.get(account.node_id, 0.0) + account.cores
    accounts: dict[str, Account] = {}
    crowds = {name: _Crowd(name, place) for name, place in sorted(places.items())}
    for name, account in clock.accounts.items():
        known = jobs.get(name)
        if known is None and account.over_at is not None:
            continue  # over in both clusters
        total, width = (known.total, known.cores) if known is not None else (account.total, account.cores)
        over_at, node_id = account.over_at, account.node_id if account.node_id in crowds else ""
        rate = min(places[node_id].cores / widths[node_id], 1.0) if node_id and over_at is None else 0.0
        attained = account.attained + seconds * rate * account.cores
        if over_at is None and attained >= total:
            over_at = _moment(account.submitted_at, now, total / attained if attained > 0 else 1.0)
        account = Account(account.submitted_at, width, total, account.memory_bytes, attained, node_id, over_at)
        accounts[name] = account
        if node_id and over_at is None:
            crowds[node_id].hold(account)
    accounts |= {name: known for name, known in jobs.items() if name not in accounts}
    waiting = [name for name, account in accounts.items() if not account.node_id and account.over_at is None]
    least = _LeastCrowded(crowds.values()) if waiting else None
    for name in waiting:
        if least is None or (crowd := least.take(accounts[name])) is None:
            if _is_large_enough(places.values(), accounts[name]):
                break  # nobody overtakes it
            continue
        accounts[name] = replace(accounts[name], node_id=crowd.node_id)
    return FairClock(now, accounts)


def fair_finishes(clock: FairClock, places: Mapping[str, Place]) -> dict[str, float]:
    """When each job is over under equal sharing if no more jobs come, seconds since the Unix epoch.

    One that no node has the memory for is left out.
    """
    now = clock.at or 0.0
    finishes: dict[str, float] = {}
    crowds = {name: _Crowd(name, place, now) for name, place in sorted(places.items())}
    waiting: list[tuple[str, Account]] = []
    for name, account in clock.accounts.items():
        if account.over_at is not None:
            # It may turn out to need more than was thought when it was over there: that much later then.
            part = min(max(account.total / account.attained, 1.0), 1e3) if account.attained > 0 else 1.0
            finishes[name] = _moment(account.submitted_at, account.over_at, part)
        elif account.node_id in crowds:
            crowds[account.node_id].join(name, account)
        else:
            waiting.append((name, account))
    ends = [(crowd.next_end, crowd.node_id) for crowd in crowds.values() if crowd.needs]
    heapify(ends)
    while waiting and ends:  # who waits begins where the first one is over that leaves room enough
        _, node_id = heappop(ends)
        crowd = crowds[node_id]
        crowd.end_first(finishes)
        left = []
        overtaken = False
        for name, account in waiting:
            if not overtaken and crowd.has_room_for(account):
                crowd.join(name, account)
            else:
                overtaken = overtaken or _is_large_enough([places[node_id]], account)
                left.append((name, account))
        waiting = left
        if crowd.needs:
            heappush(ends, (crowd.next_end, node_id))
    for crowd in crowds.values():
        while crowd.needs:
            crowd.end_first(finishes)
    return finishes


def _is_large_enough(places: Iterable[Place], account: Account) -> bool:
    return any(account.memory_bytes <= place.memory_bytes for place in places)


class _Crowd:
    """The jobs of a node that share it equally; local to one call. Those of different widths are treated alike."""

    def __init__(self, node_id: str, place: Place, now: float = 0.0) -> None:
        self.node_id = node_id
        self.needs: list[tuple[float, str, Account]] = []  # the service at which each is over, a heap
        self._cores, self._at, self._served = place.cores, now, 0.0
        self._widths, self._count, self._free = 0.0, 0, place.memory_bytes

    @property
    def crowd(self) -> float:
        """Jobs per core once another one has come."""
        return (self._count + 1) / self._cores

    @property
    def next_end(self) -> float:
        """When the next job is over, seconds since the Unix epoch."""
        return self._at + (self.needs[0][0] - self._served) / min(self._cores / self._widths, 1.0)

    def has_room_for(self, account: Account) -> bool:
        """Whether there is memory for one more; one that needs none always finds room."""
        return account.memory_bytes <= self._free or not account.memory_bytes

    def hold(self, account: Account) -> None:
        """A job is here."""
        self._free -= account.memory_bytes
        self._widths += account.cores
        self._count += 1

    def join(self, name: str, account: Account) -> None:
        """A job begins, or goes on, here."""
        self.hold(account)
        # Seconds that it needs if it runs at its full width.
        need = max(account.total - account.attained, 0.0) / account.cores
        heappush(self.needs, (self._served + need, name, account))

    def end_first(self, finishes: dict[str, float]) -> None:
        """Let time pass until the first job is over."""
        self._at = self.next_end
        self._served, name, account = heappop(self.needs)
        finishes[name] = self._at
        self._free += account.memory_bytes
        self._widths -= account.cores
        self._count -= 1


class _LeastCrowded:
    """The nodes, those first that have the fewest jobs per core; local to one call, in which they only fill up."""

    def __init__(self, crowds: Iterable[_Crowd]) -> None:
        self._heap = [(crowd.crowd, crowd.node_id, crowd) for crowd in crowds]
        heapify(self._heap)
        self._too_much = math.inf

    def take(self, account: Account) -> _Crowd | None:
        """Put a job on the first node that has room for it; None, as for all that need as much, where none has."""
        full: list[tuple[float, str, _Crowd]] = []
        found = None
        while self._heap and found is None and account.memory_bytes < self._too_much:
            seen, name, crowd = self._heap[0]
            if seen != crowd.crowd:
                heapreplace(self._heap, (crowd.crowd, name, crowd))
            elif crowd.has_room_for(account):
                found = crowd
                crowd.hold(account)
            else:
                full.append(heappop(self._heap))
        for entry in full:
            heappush(self._heap, entry)
        if found is None:
            self._too_much = min(self._too_much, account.memory_bytes)
        return found


def _moment(start: float, end: float, part: float) -> float:
    """The moment after ``part`` of the way from ``start`` to ``end``."""
    return start + (end - start) * part
