"""Cores to where they are predicted to gain the most quality: SLAQ-style (Zhang et al., 2017).

Each core of a node goes, one after another, to the job whose quality it is predicted to raise most within the next
seconds, relative to all that the job has gained so far, so that jobs with different metrics compare.
The greedy choice is right because predicted gains fall with each further core. Read of SLAQ is the idea; the fit
(exponential and inverse curves over CPU seconds, recent reports first), the unit of gain and the floor for those
without a core are ours, and so is that jobs with fewer tiers go first, which ``tier_first=false`` undoes. A job about
which too little is known counts as if its first core gained as much as all there was: the first steps are the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.allocate import FLOOR, by_turns
from tiercel.broker.scheduling.explain import at_stage, in_queue
from tiercel.broker.scheduling.forecast.curve import ReportsSeen, reports_seen
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.node_memory import NodeMemories, NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.broker.scheduling.rank import Stage, stage_of
from tiercel.broker.scheduling.slaq.prediction import predicted_gains
from tiercel.core.figures import percent
from tiercel.core.shares import Share

# What the first, second, ... core of a job is held to gain that nothing can be predicted of.
_UNKNOWN = tuple(0.5**core for core in range(32))


@dataclass(frozen=True, slots=True)
class SlaqSettings:
    """How SLAQ-style scheduling behaves."""

    horizon: float = 10.0  # seconds over which gains are predicted, > 0
    recent: int = 20  # so many of the latest reports are fitted, >= 4
    floor: float = FLOOR  # what all jobs without a core get together, a fraction of the node in (0, 1)
    # Whether jobs that have reached fewer tiers always go first, those that have reached all last.
    tier_first: bool = True

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if not self.horizon > 0 or self.recent < 4 or not 0 < self.floor < 1:
            msg = "horizon must be positive, recent at least 4, floor between 0 and 1"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted of a job until it reports again."""

    seen: ReportsSeen | None  # number, time and epoch of the reports it rests on; None without a report
    gains: tuple[float, ...]  # what each core gains, as a fraction of all that the job has gained so far
    why: str  # the same in words


@dataclass(frozen=True, slots=True)
class SlaqState:
    """What is remembered between decisions."""

    predictions: Mapping[str, Prediction] = field(default_factory=dict)  # by job id
    nodes: NodeMemories = field(default_factory=dict)  # what was decided, by node id


class SlaqPolicy:
    """Cores by predicted gain; see the module's description."""

    name: str = "slaq"
    settings_type = SlaqSettings

    def __init__(self, settings: SlaqSettings | None = None) -> None:
        self.settings = settings or SlaqSettings()

    def initial_state(self) -> SlaqState:
        """Nothing is known about any job."""
        return SlaqState()

    def plan(self, snapshot: Snapshot, state: SlaqState) -> tuple[Plan, SlaqState]:
        """Predict anew for jobs that reported, and hand out the cores of each node."""
        placement = place(snapshot)
        predictions = {job.id: self._predict(job, state.predictions.get(job.id)) for job in snapshot.jobs}
        nodes = {node.id: node for node in snapshot.nodes}
        kept: dict[str, NodeMemory] = {}
        assignments: list[Assignment] = []
        for node_id, jobs in jobs_by_node(snapshot, placement).items():
            here = tuple([(job.id, stage_of(job, snapshot.now), predictions[job.id]) for job in jobs])
            memory = recall(state.nodes, nodes[node_id], here)
            if memory is None:
                memory = NodeMemory(nodes[node_id], here, self._share(nodes[node_id], jobs, here))
            kept[node_id] = memory
            assignments += memory.assignments
        return Plan(assignments=tuple(assignments), waiting=placement.waiting), SlaqState(predictions, kept)

    def _predict(self, job: JobView, earlier: Prediction | None) -> Prediction:
        seen = reports_seen(job.observations)
        if earlier is not None and earlier.seen == seen:
            return earlier
        cores, horizon = job.resources.cpu_cores, self.settings.horizon
        gains = predicted_gains(
            job.observations, job.direction, cores=cores, horizon=horizon, recent=self.settings.recent
        )
        if gains is None:
            return Prediction(seen, _UNKNOWN, "too early to predict what it gains")
        return Prediction(seen, gains, f"predicted to gain {percent(gains[0])} of its progress so far in {horizon:g} s")

    def _share(
        self, node: NodeView, jobs: Sequence[JobView], here: Sequence[tuple[str, Stage, Prediction]]
    ) -> tuple[Assignment, ...]:
        granted = hand_out(
            [min(job.resources.cpu_cores, node.cpu_cores) for job in jobs],
            [prediction.gains for _, _, prediction in here],
            [stage if self.settings.tier_first else Stage(0, stage.trains) for _, stage, _ in here],
            node.cpu_cores,
        )
        # Those with cores in the order in which they got their first one, then the others by submission.
        line = [*granted, *(index for index in range(len(jobs)) if index not in granted)]
        shares = by_turns(
            [granted.get(index, 1.0) for index in line],
            node.cpu_cores,
            at_a_time=len(granted),
            floor=self.settings.floor,
        )
        assignments = []
        for position, (index, weight) in enumerate(zip(line, shares.weights, strict=True)):
            job_id, stage, prediction = here[index]
            why = at_stage(stage, prediction.why)
            share = Share(weight, reason=in_queue(why, weight, position, shares.front))
            assignments.append(Assignment(job_id, node.id, share))
        return tuple(assignments)


def hand_out(
    cores: Sequence[float], gains: Sequence[Sequence[float]], stages: Sequence[Stage], node_cores: float
) -> dict[int, float]:
    """Give each core of a node to whom it gains the most.

    Args:
        cores: What each job can use at most, > 0.
        gains: What each core of it gains, the first one first, never rising; the last one stands for all further ones.
        stages: Whoever has the smaller one goes first.
        node_cores: What there is to give.

    Returns:
        Cores by index of the job, in the order of their first one; none for jobs without.
    """
    wishes = [
        (stage, -gain[min(step, len(gain) - 1)], step, index, min(1.0, wanted - step))
        for index, (wanted, stage, gain) in enumerate(zip(cores, stages, gains, strict=True))
        for step in range(math.ceil(wanted))
    ]
    wishes.sort()
    granted: dict[int, float] = {}
    left = node_cores
    for _, _, _, index, part in wishes:
        if left <= 1e-9:
            break
        given = min(part, left)
        granted[index] = granted.get(index, 0.0) + given
        left -= given
    return granted
