"""A few at a time, the others at a small floor: the allocation of every policy that puts jobs in an order.

A live trial showed that most of what a tier-aware scheduler gains over equal shares comes from running no more jobs at
a time than there are cores, in whatever order. So this part is the same for all policies that have an order,
and they differ by the order alone. Weights, never caps: what those in front leave unused flows to the others.

Pure: an order in, weights or assignments with reasons out. Linear in the number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.ladder import delivering_tier, reached_tiers
from tiercel.broker.scheduling.node_memory import NodeMemories, NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.core.shares import Share

FLOOR = 0.01
# Less room than this (cores) is a rounding error and not worth a place in front.
_NO_ROOM = 1e-9
# The stage of a job that has reached every tier: behind all others.
_ALL_REACHED = 1_000_000_000
# Whoever is in front and has not handed its model over after so long waits for something else: a trial of the new
# version, say, or the inference server.
_HANDED_OVER_BY_THEN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LineUp:
    """What the jobs of a node get by their place in line.

    Attributes:
        weights: One for each job, in the order of the line.
        front: So many jobs, the first of the line, run now; the others keep a floor.
    """

    weights: tuple[float, ...]
    front: int


def line_up(
    cores: Sequence[float],
    node_cores: float,
    *,
    at_a_time: int | None = None,
    floor: float = FLOOR,
    capacity: float = 1.0,
    eligible: int | None = None,
) -> LineUp:
    """Weights of the jobs of a node that stand in line.

    Those in front share what the floor leaves, in proportion to the cores that they can use and that those before them
    left. The others share the floor alike.

    Args:
        cores: Cores that each job can use at most, > 0, in the order of the line.
        node_cores: Cores of the node.
        at_a_time: So many stand in front; None for as many as it takes to use all cores of the node.
        floor: What all the others get together, a fraction of ``capacity`` in (0, 1).
        capacity: The sum of all weights, in (0, 1].
        eligible: Only the first so many may stand in front, unless that is none of them; None for all.
    """
    candidates = eligible or len(cores)
    granted: list[float] = []
    left = node_cores
    for wanted in cores[:candidates]:
        if at_a_time is None and left <= _NO_ROOM:
            break
        if at_a_time is not None and len(granted) >= at_a_time:
            break
        use = min(wanted, node_cores) if at_a_time is not None else min(wanted, left)
        granted.append(use)
        left -= use
    others = len(cores) - len(granted)
    total = sum(granted)
    each = capacity * floor / others if others else 0.0
    scale = (capacity - each * others) / total if total > 0 else 0.0
    return LineUp(weights=(*(use * scale for use in granted), *(each,) * others), front=len(granted))


def reason_for(why: str, weight: float, position: int, front: int) -> str:
    """The sentence for a job in line.

    Args:
        why: What its place follows from, as the beginning of a sentence.
        weight: Its weight.
        position: Jobs before it.
        front: Jobs in front.
    """
    if position < front:
        turn = "the one that runs now" if front == 1 else f"one of {front} that run now"
        return f"{why}: {turn}, with {weight * 100:.3g} % of the node"
    return f"{why}: {position} go before it; keeps {weight * 100:.3g} % of the node until its turn"


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What all policies that put jobs in an order have in common.

    Attributes:
        at_a_time: Jobs in front on each node, >= 1; None for as many as it takes to use all its cores.
        floor: What all the other jobs of a node get together, a fraction of it in (0, 1).
        tier_first: Whether jobs that have reached fewer tiers always go first, those that have reached all last.
    """

    at_a_time: int | None = None
    floor: float = FLOOR
    tier_first: bool = True

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if self.at_a_time is not None and self.at_a_time < 1:
            msg = "at_a_time must be at least 1"
            raise ValueError(msg)
        if not 0 < self.floor < 1:
            msg = "floor must be between 0 and 1"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands.

    Attributes:
        rank: What the line is sorted by, the smallest first; the order of submission settles ties.
        why: What that follows from, in words for its tenant; see :func:`stage_words`.
    """

    rank: Any
    why: str


class Stage(NamedTuple):
    """How far a job is in a tier-aware line; the smallest goes first.

    Attributes:
        tiers: Tiers that it has behind it, or a large number if that is all of them.
        trains: Whether it works for the next one; False while it still hands over the model of the one that it works
            for no more, which takes little CPU and somebody waits for.
    """

    tiers: int
    trains: bool


def stage_of(job: JobView, now: float) -> Stage:
    """Where a job belongs in a tier-aware line: how many tiers it has behind it, and behind all others if all of them.

    Args:
        job: The job.
        now: Seconds since the Unix epoch.
    """
    reached = reached_tiers(job)
    tier = delivering_tier(job) if reached else None
    if tier is not None and tier.reached_seconds is not None:
        since = now - job.submitted_at - tier.reached_seconds
        if since <= _HANDED_OVER_BY_THEN_SECONDS:
            return Stage(tier.number - 1, trains=False)
    return Stage(reached if reached < len(job.tiers) else _ALL_REACHED, trains=True)


def stage_words(stage: Stage, why: str) -> str:
    """What a job at this stage does, and ``why`` it stands where it does among those that do the same."""
    if not stage.trains:
        return f"hands over the model of its tier {stage.tiers + 1}"
    work = "all its tiers are reached" if stage.tiers == _ALL_REACHED else f"works for its tier {stage.tiers + 1}"
    return f"{work}, {why}"


@dataclass(frozen=True, slots=True)
class LineState:
    """What is remembered between decisions: the line of each node and what came of it, by node id."""

    nodes: NodeMemories = field(default_factory=dict)


def plan_in_line(
    snapshot: Snapshot, state: LineState, place_in_line: Callable[[JobView], Place], settings: LineSettings
) -> tuple[Plan, LineState]:
    """Place every job, put those of each node in a line, and share it by their places.

    Args:
        snapshot: What is.
        state: What was decided before.
        place_in_line: The place of a job among those at the same stage (see :func:`stage_of`).
        settings: How many at a time, and what the others keep.
    """
    placement = place(snapshot)
    nodes = {node.id: node for node in snapshot.nodes}
    kept: dict[str, NodeMemory] = {}
    assignments: list[Assignment] = []
    for node_id, jobs in jobs_by_node(snapshot, placement).items():
        node, line = nodes[node_id], _line(jobs, snapshot.now, place_in_line, tier_first=settings.tier_first)
        memory = recall(state.nodes, node, line)
        if memory is None:
            memory = NodeMemory(node, line, _share(node, line, settings))
        kept[node_id] = memory
        assignments += memory.assignments
    return Plan(assignments=tuple(assignments), waiting=placement.waiting), LineState(kept)


# Stage or a part of it, rank, index by submission, job id, cores, stage, why.
_Entry = tuple[Stage, Any, int, str, float, Stage, str]


def _line(
    jobs: Sequence[JobView], now: float, place_in_line: Callable[[JobView], Place], *, tier_first: bool
) -> tuple[_Entry, ...]:
    """The line of a node; ``jobs`` come in the order of submission."""
    line = []
    for index, job in enumerate(jobs):
        stage = stage_of(job, now)
        standing = place_in_line(job)
        first = stage if tier_first else Stage(0, stage.trains)
        # The index settles ties, and nothing after it is compared.
        line.append((first, standing.rank, index, job.id, job.resources.cpu_cores, stage, standing.why))
    line.sort()
    return tuple(line)


def _share(node: NodeView, line: Sequence[_Entry], settings: LineSettings) -> tuple[Assignment, ...]:
    cores = [entry[4] for entry in line]
    shares = line_up(cores, node.cpu_cores, at_a_time=settings.at_a_time, floor=settings.floor)
    assignments = []
    for position, (_, _, _, job_id, _, stage, why) in enumerate(line):
        weight = shares.weights[position]
        reason = reason_for(stage_words(stage, why), weight, position, shares.front)
        assignments.append(Assignment(job_id, node.id, Share(weight, reason=reason)))
    return tuple(assignments)
