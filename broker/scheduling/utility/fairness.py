"""Finish-time fairness: nobody is kept waiting for much longer than equal sharing would have kept it.

Beside the real cluster a virtual one is kept, with the same nodes, in which each new job goes to the node with the
fewest jobs per core and all jobs of a node share it equally: what would happen if nobody scheduled anything. It says
when each job would be over there (as the virtual time of fair queueing does; Friedman and Henderson's fair sojourn
protocol orders jobs by it). A job must be over within ``ratio`` times that, counted from its submission (Themis' finish
time fairness; Mahajan et al., 2020). While everybody can still make it, the order is left to what is worth most; once
the jobs that are due by some moment need all the time until then, they go before those that are due later, and again
by worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Account:
    """A job in the virtual cluster."""

    submitted_at: float  # when it came, seconds since the Unix epoch
    attained: float  # CPU seconds of work that equal sharing would have let it do by now
    cores: float  # cores that it can use, beside an equal share of the accelerators that it needs
    total: float  # CPU seconds that it needs altogether, as far as one can tell; what it took, once it is really over
    node_id: str = ""  # where it is; empty while that is not settled
    over_at: float | None = None  # when it was over there, seconds since the Unix epoch, or None while it is not


@dataclass(frozen=True, slots=True)
class FairClock:
    """The virtual cluster."""

    at: float | None = None  # when it was looked at last, seconds since the Unix epoch, or None
    # Jobs that are there, by id: those that are really there, and others that are only virtually left.
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A job that has a right to be over in time."""

    job_id: str  # the job
    due: float  # when it must be over, seconds since the Unix epoch
    remaining: float  # CPU seconds that it needs till then
    cores: float  # cores that it can use
    reserve: float = 0.0  # seconds of time to spare under which it counts as late


def advanced(clock: FairClock, now: float, cores: Mapping[str, float], jobs: Mapping[str, Account]) -> FairClock:
    """The virtual cluster now.

    Args:
        clock: The cluster as it was.
        now: Seconds since the Unix epoch.
        cores: Cores of each node.
        jobs: Those that are really there, with what they need altogether by the latest estimate, by submission; what
            they attained and where they are is not read.
    """
    seconds = max(now - clock.at, 0.0) if clock.at is not None else 0.0
    shares = _equal_shares(clock, cores)
    accounts: dict[str, Account] = {}
    counts = dict.fromkeys(sorted(cores), 0)
    for name, account in clock.accounts.items():
        known = jobs.get(name)
        if known is None and account.over_at is not None:
            continue  # over in both clusters
        total, width = (known.total, known.cores) if known is not None else (account.total, account.cores)
        speed = min(shares.get(account.node_id, 0.0), account.cores) if account.over_at is None else 0.0
        attained = account.attained + seconds * speed
        over_at = account.over_at
        if over_at is None and attained >= total:
            over_at = _moment(account.submitted_at, now, total / attained if attained > 0 else 1.0)
        node_id = account.node_id if account.node_id in counts else ""
        accounts[name] = Account(account.submitted_at, attained, width, total, node_id, over_at)
        if node_id and over_at is None:
            counts[node_id] += 1
    for name, known in jobs.items():
        if name not in accounts:
            accounts[name] = Account(known.submitted_at, 0.0, known.cores, known.total)
    for name, account in accounts.items():
        if not account.node_id and counts:
            node_id = min(counts, key=lambda node_id: ((counts[node_id] + 1) / cores[node_id], node_id))
            counts[node_id] += 1
            accounts[name] = replace(account, node_id=node_id)
    return FairClock(now, accounts)


def fair_finishes(clock: FairClock, cores: Mapping[str, float]) -> dict[str, float]:
    """When each job is over under equal sharing if no more jobs come, seconds since the Unix epoch."""
    now = clock.at or 0.0
    finishes: dict[str, float] = {}
    left: dict[str, list[tuple[float, str, float]]] = {}
    for name, account in clock.accounts.items():
        if account.over_at is not None:
            # It may turn out to need more than was thought when it was over there: that much later then.
            part = min(max(account.total / account.attained, 1.0), 1e3) if account.attained > 0 else 1.0
            finishes[name] = _moment(account.submitted_at, account.over_at, part)
        else:
            # Seconds that it needs if it runs at its full width; those of different widths are treated alike.
            need = (account.total - account.attained) / account.cores
            left.setdefault(account.node_id, []).append((need, name, account.cores))
    for node_id, jobs in left.items():
        jobs.sort()
        widths = sum(width for _, _, width in jobs)
        at, done = now, 0.0
        for need, name, width in jobs:
            part = min(cores.get(node_id, math.inf) / widths, 1.0)
            at += (need - done) / part
            done = need
            finishes[name] = at
            widths -= width
    return finishes


def _moment(start: float, end: float, part: float) -> float:
    """The moment after ``part`` of the way from ``start`` to ``end``."""
    return start + (end - start) * part


def late(claimants: Sequence[Claimant], now: float, cores: float) -> tuple[dict[str, float], float]:
    """The jobs of a node that must go before the others now, and the least time that anybody has to spare.

    A job goes first by itself if it is late even alone. Where the jobs that are due by some moment need all the time
    that the node has until then, they go before those that are due later; who of them runs is open as long as those due
    earlier still have time.

    Args:
        claimants: Its jobs.
        now: Seconds since the Unix epoch.
        cores: Its cores.

    Returns:
        By job, the moment (seconds since the Unix epoch) for the sake of which it goes first, smaller ones first; and
        the seconds until somebody is late: negative where somebody is, infinite without jobs.
    """
    demand = 0.0
    spare = math.inf
    overdue: dict[str, float] = {}
    waiting: list[Claimant] = []
    for claimant in sorted(claimants, key=lambda claimant: (claimant.due, claimant.job_id)):
        demand += claimant.remaining
        left = claimant.due - now - claimant.reserve
        by_itself, with_all_before = left - claimant.remaining / claimant.cores, left - demand / cores
        spare = min(spare, by_itself, with_all_before)
        waiting.append(claimant)
        if with_all_before < 0:
            overdue.update((each.job_id, claimant.due) for each in waiting)
            waiting.clear()
        elif by_itself < 0:
            overdue[claimant.job_id] = claimant.due
            waiting.pop()
    return overdue, spare


def _equal_shares(clock: FairClock, cores: Mapping[str, float]) -> dict[str, float]:
    """Cores for each job of a node that can use more than that, when all are treated alike; by node."""
    widths: dict[str, list[float]] = {}
    for account in clock.accounts.values():
        if account.over_at is None:
            widths.setdefault(account.node_id, []).append(account.cores)
    return {node_id: _equal_share(found, cores.get(node_id, 0.0)) for node_id, found in widths.items()}


def _equal_share(widths: Sequence[float], cores: float) -> float:
    """Cores for each of those that can use more than that, when all are treated alike."""
    if sum(widths) <= cores:
        return cores
    left, count = cores, len(widths)
    for width in sorted(widths):
        if width * count >= left:
            return left / count
        left -= width
        count -= 1
    return cores
