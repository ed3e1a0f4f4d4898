"""The one fairness constraint: nobody is over much later than under equal shares.

A virtual cluster (:mod:`..equal_shares`) says when each job would be over if all shared equally. A job must be over
within ``ratio`` times that, counted from its submission (Themis' finish time fairness; Mahajan et al., 2020). While
everybody can still make it, the order is left to what is worth most; once the jobs that are due by some moment need all
the time until then, they go before those that are due later, and again by worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.equal_shares import Account, FairClock, Place, advanced, fair_finishes
from tiercel.broker.scheduling.interface import Snapshot
from tiercel.broker.scheduling.rank import by_submission
from tiercel.broker.scheduling.utility.record import JobRecord

# Fair shares and migrations are looked at this often, the former also once this part of the jobs came or went.
_REVIEW_SECONDS, _FEW = 5.0, 0.01


@dataclass(frozen=True, slots=True)
class Review:
    """What fair sharing would give."""

    at: float = -math.inf  # when it was last time for that, and for migrations, seconds since the Unix epoch
    jobs: frozenset[str] = frozenset()  # those that there were
    clock: FairClock = field(default_factory=FairClock)  # the virtual cluster with equal shares
    due: Mapping[str, float] = field(default_factory=dict)  # when each job must be over


def reviewed(
    last: Review, snapshot: Snapshot, records: Mapping[str, JobRecord], left: Mapping[str, float], ratio: float
) -> Review:
    """What fair sharing would give, looked at again when it is time or when jobs came or went.

    Args:
        last: What it would give when that was last looked at.
        snapshot: Jobs and nodes.
        records: What is held of jobs.
        left: Cores that answers leave, by node.
        ratio: Nobody shall need longer than this times what equal sharing would take; 0 for as long as it takes.
    """
    is_time = snapshot.now >= last.at + _REVIEW_SECONDS
    if not is_time and (not ratio or len(records.keys() ^ last.jobs) <= _FEW * len(records)):
        return last
    at = snapshot.now if is_time else last.at
    if not ratio or not snapshot.nodes:
        return Review(at)
    places = {
        node.id: Place(left[node.id], node.memory_bytes, snapshot.given.get(node.id, 1.0))
        for node in snapshot.nodes
        if node.cpu_cores > 0
    }
    accelerators = sum(len(node.accelerators) for node in snapshot.nodes)
    part = min(accelerators / max(sum(job.resources.accelerators for job in snapshot.jobs), 1), 1.0)
    jobs = {
        job.id: Account(
            job.submitted_at,
            records[job.id].needs.cores_with(part or 1.0),
            records[job.id].spent + records[job.id].to_end,
            job.resources.memory_bytes,
        )
        for job in by_submission(snapshot.jobs)
    }
    clock = advanced(last.clock, snapshot.now, places, jobs)
    due = {
        name: jobs[name].submitted_at + ratio * (finish - jobs[name].submitted_at)
        for name, finish in fair_finishes(clock, places).items()
        if name in jobs
    }
    return Review(at, frozenset(records), clock, due)


def late(claims: Iterable[tuple[float, str, float, float]], now: float, cores: float) -> tuple[dict[str, float], float]:
    """The jobs of a node that must go before the others now, and the least time that anybody has to spare.

    A job goes first by itself if it is late even alone. Where the jobs that are due by some moment need all the time
    that the node has until then, they go before those that are due later; who of them runs is open as long as those due
    earlier still have time.

    Args:
        claims: When each job must be over (seconds since the Unix epoch), its id, the CPU seconds that it needs till
            then, and the cores that it can use.
        now: Seconds since the Unix epoch.
        cores: Those of the node.

    Returns:
        By job, the moment (seconds since the Unix epoch) for the sake of which it goes first, smaller ones first; and
        the seconds until somebody is late: negative where somebody is, infinite without jobs.
    """
    demand, spare = 0.0, math.inf
    overdue: dict[str, float] = {}
    waiting: list[str] = []
    for due, name, remaining, width in sorted(claims):
        demand += remaining
        by_itself, with_all_before = due - now - remaining / width, due - now - demand / cores
        spare = min(spare, by_itself, with_all_before)
        if with_all_before < 0:
            overdue |= dict.fromkeys((*waiting, name), due)
            waiting.clear()
        elif by_itself < 0:
            overdue[name] = due
        else:
            waiting.append(name)
    return overdue, spare
