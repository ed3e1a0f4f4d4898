"""TRADL-style scheduling: the first tier first, then keep improving.

A reconstruction, not a re-implementation: of TRADL (HPEC 2019) only the abstract can be read, which gives the two-tier
target and the aim; the rule below is ours, made general from two tiers to N:

* First ("in the lead") are the jobs of a node that have reached the fewest tiers; while any is short of its tier 1,
  that is tier 1. All others keep a floor of half of FlowCon's, so that they go on improving.
* The lead's jobs share the rest by ``growth / gap`` ("eta": shortest expected time to the target first), or by
  ``growth`` or ``gap`` alone.
* A lead job whose target turns out to be out of reach goes back to the floor (see :mod:`.forecast.reach`).

Shares are weights, never caps: what a job leaves unused flows to the others. A job gets no more weight than the cores
it can use, where another can use it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from tiercel.broker.scheduling.allocate import Claim, divide
from tiercel.broker.scheduling.forecast.known import KnownWork
from tiercel.broker.scheduling.forecast.reach import ReachSettings
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.node_memory import NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.broker.scheduling.tradl import explain
from tiercel.broker.scheduling.tradl.memory import JobMemory, TradlState, judged, measured, remember
from tiercel.broker.scheduling.tradl.rank import Candidate, TradlWeight, find_lead, lead_weights
from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class TradlSettings:
    """How TRADL-style scheduling behaves."""

    weights: TradlWeight = TradlWeight.ETA  # what the jobs in the lead are weighted by
    # Whether the growth is the one that earlier runs of the program foretell, where they tell: the gap over the CPU
    # seconds that they needed for it.
    history: bool = False
    window: int = 3  # reports in each of the two neighbouring windows whose means give the growth
    # FlowCon's floor parameter, >= 1; the floor is ``1 / (2 * beta * n)`` for n jobs on the node. None means ``1 +
    # 1/n`` as in FlowCon's last version, hence a floor of ``1 / (2 * (n + 1))``.
    beta: float | None = None
    alpha: float = ReachSettings().alpha  # see :class:`.ReachSettings`
    min_reports: int = ReachSettings().min_reports  # see :class:`.ReachSettings`
    fresh_reports: int = ReachSettings().fresh_reports  # see :class:`.ReachSettings`
    verdicts: int = ReachSettings().verdicts  # see :class:`.ReachSettings`
    noise_margin: float = ReachSettings().noise_margin  # see :class:`.ReachSettings`

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if self.window < 1 or (self.beta is not None and not self.beta >= 1):
            msg = "window and beta must be at least 1"
            raise ValueError(msg)
        if min(self.min_reports - 5, self.fresh_reports, self.verdicts) < 1 or self.alpha < 0:
            msg = "min_reports must be at least 6, fresh_reports and verdicts at least 1, alpha at least 0"
            raise ValueError(msg)

    @property
    def reach(self) -> ReachSettings:
        """The part about targets out of reach."""
        return ReachSettings(self.alpha, self.min_reports, self.fresh_reports, self.verdicts, self.noise_margin)

    def floor(self, jobs: int) -> float:
        """The least weight of a job among ``jobs`` on its node."""
        beta = 1 + 1 / jobs if self.beta is None else self.beta
        return 1 / (2 * beta * jobs)


class TradlPolicy:
    """Tiers first, the rest at a floor; see the module's description."""

    name: str = "tradl"
    settings_type = TradlSettings

    def __init__(self, settings: TradlSettings | None = None) -> None:
        self.settings = settings or TradlSettings()
        self._reach = self.settings.reach

    def initial_state(self) -> TradlState:
        """Nothing is known about any job."""
        return TradlState()

    def plan(self, snapshot: Snapshot, state: TradlState) -> tuple[Plan, TradlState]:
        """Place jobs, judge those in the lead, and share each node with news among its jobs."""
        placement = place(snapshot)
        memories = {job.id: remember(job, state.jobs.get(job.id)) for job in snapshot.jobs}
        nodes, earlier = {node.id: node for node in snapshot.nodes}, KnownWork(snapshot)
        kept: dict[str, NodeMemory] = {}
        assignments: list[Assignment] = []
        for node_id, jobs in jobs_by_node(snapshot, placement).items():
            node, now = nodes[node_id], [memories[job.id] for job in jobs]
            memory = recall(state.nodes, node, tuple(now))
            if memory is None:
                given, settled = self._visit(node, jobs, now, earlier)
                memories.update(zip((job.id for job in jobs), now, strict=True))
                memory = NodeMemory(node, tuple(now) if settled else (), given)
            kept[node_id] = memory
            assignments += memory.assignments
        out_of_reach = [(job_id, memory.record) for job_id, memory in memories.items() if memory.record.unreachable]
        unreachable = {job_id: record.unreachable for job_id, record in sorted(out_of_reach, key=itemgetter(0))}
        plan = Plan(assignments=tuple(assignments), waiting=placement.waiting, unreachable=unreachable)
        return plan, TradlState(memories, kept)

    def _visit(
        self, node: NodeView, jobs: Sequence[JobView], memories: list[JobMemory], earlier: KnownWork
    ) -> tuple[tuple[Assignment, ...], bool]:
        """Judge the jobs of a node, share it, bring ``memories`` up to date; and say whether that is settled."""
        leads = find_lead(jobs, memories)
        for index, job in enumerate(jobs):
            if leads[index] or memories[index].record.unreachable:
                memories[index] = judged(job, memories[index], self._reach)
        after = find_lead(jobs, memories)
        for index, job in enumerate(jobs):
            if after[index]:
                known = earlier.remaining(job) if self.settings.history else None
                expected = known.expected if known is not None else None
                memories[index] = measured(job, memories[index], self.settings.window, expected)
        candidates = [Candidate(*each) for each in zip(jobs, memories, after, strict=True)]
        weights = self._weights(node, candidates)
        leaders = sum(after)
        given = []
        for candidate in candidates:
            weight = weights[candidate.job.id]
            share = Share(weight, reason=explain.sentence(candidate, leaders, weight))
            given.append(Assignment(candidate.job.id, node.id, share))
        # Those who came to the lead by the verdict on another one are not judged yet: the next visit may find more.
        return tuple(given), leads == after

    def _weights(self, node: NodeView, candidates: Sequence[Candidate]) -> dict[str, float]:
        """The weight of each job of a node, by id."""
        floor = self.settings.floor(len(candidates))
        ceilings = {
            candidate.job.id: min(max(floor, candidate.job.resources.cpu_cores / node.cpu_cores), 1.0)
            for candidate in candidates
        }
        first = [candidate for candidate in candidates if candidate.leads]
        if not first:
            return {candidate.job.id: 1 / len(candidates) for candidate in candidates}
        rest = [candidate for candidate in candidates if not candidate.leads]
        wishes = lead_weights(first, self.settings.weights)
        claims = {name: Claim(wish, floor, ceilings[name]) for name, wish in wishes.items()}
        given = divide(claims, 1 - floor * len(rest))
        given |= {candidate.job.id: floor for candidate in rest}
        # What the lead cannot use goes to those who still improve; a job out of reach never gets more than its floor.
        improving = [candidate.job.id for candidate in rest if not candidate.memory.record.unreachable]
        left = 1 - sum(given.values())
        if improving and left > 0:
            equal = {name: Claim(1.0, floor, ceilings[name]) for name in improving}
            given |= divide(equal, left + floor * len(improving))
        return given
