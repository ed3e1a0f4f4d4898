"""A few at a time, the others at a small floor: the allocation of every policy that puts jobs in an order.

A live trial showed that most of what a tier-aware scheduler gains over equal shares comes from running no more jobs at
a time than there are cores, in whatever order (live §3). So this part is the same for all policies that have an order,
and they differ by the order alone. Weights, never caps: what those in front leave unused flows to the others.

Pure: an order in, weights or assignments with reasons out. Linear in the number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiercel.broker.domain.shares import Share
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.ladder import reached_tiers
from tiercel.broker.scheduling.node_memory import NodeMemories, NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place

FLOOR = 0.02
# Less room than this (cores) is a rounding error and not worth a place in front.
_NO_ROOM = 1e-9
# The stage of a job that has reached every tier: behind all others.
_ALL_REACHED = 1_000_000_000


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
        why: What that follows from, in words for its tenant; they come after :func:`stage_words` and a comma.
    """

    rank: Any
    why: str


def stage_of(job: JobView) -> int:
    """Where a job belongs in a tier-aware line: how many tiers it has reached, and behind all others if all of them."""
    reached = reached_tiers(job)
    return reached if reached < len(job.tiers) else _ALL_REACHED


def stage_words(stage: int) -> str:
    """What a job at this stage works for."""
    return "all its tiers are reached" if stage == _ALL_REACHED else f"works for its tier {stage + 1}"


@dataclass(frozen=True, slots=True)
class LineState:
    """What is remembered between decisions: the line of each node and what came of it, by node id."""

    nodes: NodeMemories = field(default_factory=dict)


def plan_in_line(
    snapshot: Snapshot, state: LineState, place_in_line: Callable[[JobView, int], Place], settings: LineSettings
) -> tuple[Plan, LineState]:
    """Place every job, put those of each node in a line, and share it by their places.

    Args:
        snapshot: What is.
        state: What was decided before.
        place_in_line: The place of a job at a stage (see :func:`stage_of`).
        settings: How many at a time, and what the others keep.
    """
    placement = place(snapshot)
    nodes = {node.id: node for node in snapshot.nodes}
    kept: dict[str, NodeMemory] = {}
    assignments: list[Assignment] = []
    for node_id, jobs in jobs_by_node(snapshot, placement).items():
        node, line = nodes[node_id], _line(jobs, place_in_line, tier_first=settings.tier_first)
        memory = recall(state.nodes, node, line)
        if memory is None:
            memory = NodeMemory(node, line, _share(node, line, settings))
        kept[node_id] = memory
        assignments += memory.assignments
    return Plan(assignments=tuple(assignments), waiting=placement.waiting), LineState(kept)


# Stage, rank, index by submission, job id, cores, stage again where it is not what the line is sorted by, why.
_Entry = tuple[int, Any, int, str, float, int, str]


def _line(
    jobs: Sequence[JobView], place_in_line: Callable[[JobView, int], Place], *, tier_first: bool
) -> tuple[_Entry, ...]:
    """The line of a node; ``jobs`` come in the order of submission."""
    line = []
    for index, job in enumerate(jobs):
        stage = stage_of(job)
        standing = place_in_line(job, stage)
        first = stage if tier_first else 0
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
        reason = reason_for(f"{stage_words(stage)}, {why}", weight, position, shares.front)
        assignments.append(Assignment(job_id, node.id, Share(weight, reason=reason)))
    return tuple(assignments)
