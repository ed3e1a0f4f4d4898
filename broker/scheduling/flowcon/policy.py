"""FlowCon: CPU follows growth efficiency (Zheng et al., ICPP 2019).

A re-implementation of the mechanism as read in the authors' code: one pass each interval measures every
job's growth efficiency, moves jobs between the New, Watching and Completing lists, and limits each job's CPU to its
part of all growth; Completing jobs keep a floor of ``1 / (n + 1)``. Each node has passes and a back-off of its own: the
interval doubles while all its jobs are Completing, and starts over as soon as one comes or goes. Tiers mean nothing.

Of what is peculiar in the authors' code,

* kept: the one-pass lag before limits are lifted; means over intervals that stay as long while the passes back off; an
  alpha with a unit, to be published together with the interval and with what the metric is divided by (its largest
  absolute value), ``scale_free`` being the way out; a doubled interval that only a job that comes or goes resets;
* not kept: a job without history moved on for that (it stays New and unlimited here); limits cut to whole cores (none
  falls below ``min_cap_cores`` here); a doubling without bound; a ``no_update`` that applies limits all the same.

Ours: a job that said nothing since the last pass stays on its list, since its silence may be our doing; and the passes
of all nodes fall on one grid of intervals, so that many nodes do not mean many decisions.

Published limits are hard caps, which leave cores idle that nobody may use (``literal``). By default each job gets as
its *weight* what the caps would give it (equal weights, filled up to each cap), and what the caps would leave idle is
spread in proportion (``conserving``).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiercel.broker.scheduling.flowcon.growth import growth_efficiency, largest_value
from tiercel.broker.scheduling.flowcon.lists import (
    FlowconList,
    FlowconRecord,
    FlowconRule,
    all_completing,
    one_pass,
)
from tiercel.broker.scheduling.forecast.curve import reports_seen
from tiercel.broker.scheduling.interface import Assignment, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.node_memory import NodeMemories, NodeMemory, recall
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.core.figures import percent
from tiercel.core.filling import fill
from tiercel.core.shares import Share

# Clocks are read to within this part of an interval.
_SLACK = 1e-3


class FlowconMode(enum.Enum):
    """How limits are enforced."""

    CONSERVING = "conserving"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class FlowconSettings:
    """How FlowCon behaves. The defaults are those of the authors' code."""

    # Below this growth efficiency a job moves on to the next list; parts of the metric's largest value per second and
    # node, or with ``scale_free`` of the job's own best growth efficiency.
    alpha: float = 0.03
    # The floor is ``1 / (beta * n)`` for n jobs on the node, >= 1; None for ``1 + 1/n``, hence ``1 / (n + 1)``.
    beta: float | None = None
    # Seconds between two passes, and the length of the intervals whose means are compared (itval), > 0.
    interval: float = 30.0
    mode: FlowconMode = FlowconMode.CONSERVING  # weights that waste nothing, or hard caps
    # Limits by the part of all growth, or step by step (the snapshot of February 2019, "FlowCon-mult").
    rule: FlowconRule = FlowconRule.DIRECT
    scale_free: bool = False  # whether alpha is a fraction of the job's own best growth efficiency so far
    no_update: bool = False  # measure and decide, but apply nothing: what the mechanism itself costs
    no_backoff: bool = False  # never lengthen the interval between passes
    max_factor: int = 16  # it is lengthened to at most so many intervals
    min_cap_cores: float = 0.05  # no job's limit is below this, in cores

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        if not self.alpha >= 0 or (self.beta is not None and not self.beta >= 1) or self.max_factor < 1:
            msg = "alpha must be at least 0, beta and max_factor at least 1"
            raise ValueError(msg)
        if not 0 < self.interval < math.inf or not 0 < self.min_cap_cores < math.inf:
            msg = "interval and min_cap_cores must be positive"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class PassTimer:
    """When a node's next pass is."""

    next_tick: int  # number of the interval since ``FlowconState.since`` at which it is due
    factor: int = 1  # intervals between two passes at present
    # The node's jobs since passes are rarer, for which the listener listens; None before.
    backed_off: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FlowconState:
    """What is remembered between decisions."""

    # When the first interval began, seconds since the Unix epoch; None before the first decision.
    since: float | None = None
    timers: Mapping[str, PassTimer] = field(default_factory=dict)  # by node
    records: Mapping[str, FlowconRecord] = field(default_factory=dict)  # by job
    nodes: NodeMemories = field(default_factory=dict)  # what was decided, by node


class FlowconPolicy:
    """CPU by growth efficiency; see the module's description."""

    name: str = "flowcon"
    settings_type = FlowconSettings

    def __init__(self, settings: FlowconSettings | None = None) -> None:
        self.settings = settings or FlowconSettings()

    def initial_state(self) -> FlowconState:
        """Nothing is known about any job."""
        return FlowconState()

    def plan(self, snapshot: Snapshot, state: FlowconState) -> tuple[Plan, FlowconState]:
        """Pass over each node that is due or whose jobs changed while it backed off, and share all nodes."""
        since = snapshot.now if state.since is None else state.since
        at = (snapshot.now - since) / self.settings.interval
        placement = place(snapshot)
        nodes = {node.id: node for node in snapshot.nodes}
        timers: dict[str, PassTimer] = {}
        records = {job.id: state.records[job.id] for job in snapshot.jobs if job.id in state.records}
        kept: dict[str, NodeMemory] = {}
        assignments: list[Assignment] = []
        for node_id, jobs in jobs_by_node(snapshot, placement).items():
            known = [state.records.get(job.id, _NEW) for job in jobs]
            timer = state.timers.get(node_id) or PassTimer(next_tick=math.floor(at + _SLACK) + 1)
            timers[node_id], known = self._visit(jobs, known, timer, nodes[node_id], snapshot.now, at)
            ids = [job.id for job in jobs]
            records.update(zip(ids, known, strict=True))
            key = (*ids, *known)
            memory = recall(state.nodes, nodes[node_id], key)
            if memory is None:
                memory = NodeMemory(nodes[node_id], key, self._share(nodes[node_id], ids, known))
            kept[node_id] = memory
            assignments += memory.assignments
        next_tick = min((timer.next_tick for timer in timers.values()), default=None)
        plan = Plan(
            assignments=tuple(assignments),
            waiting=placement.waiting,
            next_at=None if next_tick is None else since + next_tick * self.settings.interval,
        )
        return plan, FlowconState(since, timers, records, kept)

    def _visit(
        self,
        jobs: Sequence[JobView],
        known: list[FlowconRecord],
        timer: PassTimer,
        node: NodeView,
        now: float,
        at: float,
    ) -> tuple[PassTimer, list[FlowconRecord]]:
        """A pass over a node's jobs if it is time or the listener heard something; ``at`` is in intervals."""
        tick = math.floor(at + _SLACK)
        disturbed = timer.backed_off is not None and timer.backed_off != frozenset(job.id for job in jobs)
        # A wait longer than any that is ever set means that the clock was put back.
        if not disturbed and 0 < timer.next_tick - tick <= self.settings.max_factor + 1:
            return timer, known
        settings = self.settings
        measured = [self._measure(job, record, node, now) for job, record in zip(jobs, known, strict=True)]
        passed = one_pass(
            measured, alpha=settings.alpha, beta=settings.beta, rule=settings.rule, scale_free=settings.scale_free
        )
        if disturbed:
            # The point of the grid that is nearest to one interval from now.
            return PassTimer(next_tick=math.floor(at + 1.5)), passed
        factor, backed_off = timer.factor, timer.backed_off
        if all_completing(passed) and not settings.no_backoff:
            factor = min(2 * factor, settings.max_factor)
            backed_off = frozenset(job.id for job in jobs)
        return PassTimer(tick + factor, factor, backed_off), passed

    def _measure(self, job: JobView, record: FlowconRecord, node: NodeView, now: float) -> FlowconRecord:
        """The record with the growth of this pass, where there are reports that no pass has seen."""
        seen = reports_seen(job.observations)
        if seen is None:
            return record
        if seen == record.seen:
            return replace(record, fresh=False) if record.fresh else record
        largest = largest_value(job.observations, record.largest)
        growth = growth_efficiency(job.observations, now, self.settings.interval, node.cpu_cores, largest)
        if growth is None:
            return replace(record, largest=largest, seen=seen, fresh=False)
        best = max(record.best, growth)
        return FlowconRecord(record.list, record.limit, growth, best, largest, seen, fresh=True)

    def _share(self, node: NodeView, ids: Sequence[str], known: Sequence[FlowconRecord]) -> tuple[Assignment, ...]:
        shares = self._shares(node, known)
        return tuple(Assignment(job_id, node.id, share) for job_id, share in zip(ids, shares, strict=True))

    def _shares(self, node: NodeView, known: Sequence[FlowconRecord]) -> list[Share]:
        equal = 1 / len(known)
        if self.settings.no_update:
            return [Share(equal, reason="FlowCon only watches here: equal shares")] * len(known)
        least = min(self.settings.min_cap_cores / node.cpu_cores, 1.0)
        limits = [max(record.limit, least) for record in known]
        if self.settings.mode is FlowconMode.LITERAL:
            # Engines take hundredths of a core.
            caps = [None if limit >= 1 else max(round(limit * node.cpu_cores, 2), 0.01) for limit in limits]
            return [
                Share(equal, cap, f"{_finding(record)}; {_capped(cap)}")
                for record, cap in zip(known, caps, strict=True)
            ]
        return [
            Share(weight, reason=f"{_finding(record)}; {percent(weight)} of the node")
            for record, weight in zip(known, weights_under(limits), strict=True)
        ]


_NEW = FlowconRecord()


def weights_under(limits: Sequence[float]) -> list[float]:
    """What jobs of equal weight get of a node under hard limits, and with it what the limits would leave idle.

    Args:
        limits: Each a fraction of the node, > 0.

    Returns:
        Weights that add up to 1.
    """
    given = fill([1.0] * len(limits), limits, 1.0)
    total = math.fsum(given)
    return [weight / total for weight in given]


def _finding(record: FlowconRecord) -> str:
    """What FlowCon holds of the job."""
    if record.growth is None:
        return "too early to say how efficiently it improves, so it is not limited"
    if record.list is FlowconList.NEW:
        return f"new: its growth efficiency is {record.growth:.3g}"
    if record.list is FlowconList.WATCHING:
        return f"watched: its growth efficiency fell to {record.growth:.3g}, so it keeps its limit"
    return f"completing: its growth efficiency stayed low ({record.growth:.3g})"


def _capped(cap: float | None) -> str:
    return "no limit" if cap is None else f"at most {cap:.3g} cores"
