"""What would happen if nobody scheduled anything: a virtual cluster beside the real one, with equal shares.

It has the same nodes. Each new job goes, by submission, to the node with the fewest jobs per core, begins there once
there is memory, and all that have begun share the node equally, at the price of sharing. It says when each job would be
over there, as the virtual time of fair queueing does; Friedman and Henderson's fair sojourn protocol orders jobs by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

# What a CPU second loses by all that others have of its core, as measured of training processes with the kernel's own
# time slices: equal shares are what a container engine makes of them.
_SHARING_COSTS = 0.28


@dataclass(frozen=True, slots=True)
class Place:
    """What a node has for jobs."""

    cores: float  # cores, > 0
    memory_bytes: int  # memory
    given: float = 1.0  # part of what jobs could use of its cores that they get, in (0, 1]

    def speed(self, width: float) -> float:
        """Work that jobs that can use ``width`` cores together do here, as a part of what all of them could."""
        share = min(self.cores / width, 1.0)
        return self.given * share * (1.0 - _SHARING_COSTS * (1.0 - share))


@dataclass(frozen=True, slots=True)
class Account:
    """A job in the virtual cluster."""

    submitted_at: float  # when it came, seconds since the Unix epoch
    cores: float  # cores that it can use, beside an equal share of the accelerators that it needs
    total: float  # CPU seconds that it needs altogether, as far as one can tell; what it took, once it is really over
    memory_bytes: int = 0  # memory that it holds from its beginning to its end
    attained: float = 0.0  # CPU seconds of work that equal sharing would have let it do by now
    node_id: str = ""  # where it is or, as it looks now, will be; empty while no node is large enough
    began: bool = False  # whether there was memory for it
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
        if account.began and account.over_at is None:
            widths[account.node_id] = widths.get(account.node_id, 0.0) + account.cores
    accounts: dict[str, Account] = {}
    for name, account in clock.accounts.items():
        known = jobs.get(name, account)
        if known is account and account.over_at is not None:
            continue  # over in both clusters
        attained, over_at = account.attained, account.over_at
        stays = account.began and account.node_id in places  # who waits goes by what was over meanwhile
        if stays and over_at is None:
            attained += seconds * places[account.node_id].speed(widths[account.node_id]) * account.cores
        if over_at is None and attained >= known.total:
            over_at = _moment(account.submitted_at, now, known.total / attained if attained > 0 else 1.0)
        accounts[name] = Account(
            account.submitted_at,
            known.cores,
            known.total,
            account.memory_bytes,
            attained,
            account.node_id if stays else "",
            stays,
            over_at,
        )
    accounts |= {name: known for name, known in jobs.items() if name not in accounts}
    _assign(accounts, places)
    return FairClock(now, accounts)


def _assign(accounts: dict[str, Account], places: Mapping[str, Place]) -> None:
    """Send jobs that have not begun to the node with the fewest jobs per core, where those begin that have memory."""
    free, counts = {name: place.memory_bytes for name, place in places.items()}, dict.fromkeys(places, 0)
    for account in accounts.values():
        if account.began and account.over_at is None:
            counts[account.node_id] += 1
            free[account.node_id] -= account.memory_bytes
    crowds = [((counts[name] + 1) / place.cores, name) for name, place in places.items()]
    heapify(crowds)
    full = set()
    for name, account in accounts.items():
        if account.began or account.over_at is not None:
            continue
        node_id, small = "", []
        while crowds and not node_id:
            small.append(heappop(crowds))
            node_id = small[-1][1] if account.memory_bytes <= places[small[-1][1]].memory_bytes else ""
        for crowd, other in small:
            heappush(crowds, (crowd + (other == node_id) / places[other].cores, other))
        if not node_id:
            continue
        if account.memory_bytes > free[node_id]:
            full.add(node_id)  # nobody overtakes it
        began = node_id not in full
        free[node_id] -= account.memory_bytes * began
        accounts[name] = replace(account, node_id=node_id, began=began)


def fair_finishes(clock: FairClock, places: Mapping[str, Place]) -> dict[str, float]:
    """When each job is over under equal sharing if no more jobs come, seconds since the Unix epoch.

    One that no node has the memory for is left out.
    """
    finishes: dict[str, float] = {}
    groups: dict[str, list[tuple[str, Account]]] = {}
    for name, account in clock.accounts.items():
        if account.over_at is not None:
            # It may turn out to need more than was thought when it was over there: that much later then.
            part = min(max(account.total / account.attained, 1.0), 1e3) if account.attained > 0 else 1.0
            finishes[name] = _moment(account.submitted_at, account.over_at, part)
        elif account.node_id in places:
            groups.setdefault(account.node_id, []).append((name, account))
    for node_id, jobs in groups.items():
        finishes.update(_finishes_on(places[node_id], clock.at or 0.0, jobs))
    return finishes


def _finishes_on(place: Place, at: float, jobs: Iterable[tuple[str, Account]]) -> dict[str, float]:
    """When each job of a node is over; those of different widths are treated alike."""
    finishes: dict[str, float] = {}
    there: list[tuple[float, str, Account]] = []  # by the seconds at full width after which each is over, a heap
    waiting = deque(jobs)
    served, width, free = 0.0, 0.0, place.memory_bytes
    while waiting or there:
        while waiting and (waiting[0][1].began or not there or waiting[0][1].memory_bytes <= free):
            name, account = waiting.popleft()
            free, width = free - account.memory_bytes, width + account.cores
            heappush(there, (served + max(account.total - account.attained, 0.0) / account.cores, name, account))
        end, name, account = heappop(there)
        at += (end - served) / place.speed(width)
        served, finishes[name] = end, at
        free, width = free + account.memory_bytes, width - account.cores
    return finishes


def _moment(start: float, end: float, part: float) -> float:
    """The moment after ``part`` of the way from ``start`` to ``end``."""
    return start + (end - start) * part
