"""Whatever arrives, in whatever order and however often: a job and its endpoint keep their promises.

Drives the two machines together as their actors do, effects and all, with duplicates, late messages, lost effects and
restarts of the broker at any point between two steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testing.jobs import AT, make_spec
from tiercel.broker.lifecycle import endpoint as endpoint_machine
from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.environment import MAX_ENVIRONMENTS
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Assigned,
    CancelRequested,
    Deferred,
    DeliveryEnded,
    JobInput,
    MoveOrdered,
    NodeFenced,
    NodeGone,
    NodeSilent,
    Reported,
    RequestDelivery,
    ResumeRequested,
    RunExited,
    RunIsAlive,
    RunUnknown,
    ShareUpdated,
    SuspendRequested,
    Ticked,
    TierFeasibilityChanged,
    TurnCame,
    UsageMeasured,
)
from tiercel.broker.lifecycle.run import MAX_LOST_RUNS
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, delivery_id
from tiercel.core.jobs import Job, JobState, TierState, TierStatus
from tiercel.core.moments import Moment
from tiercel.core.shares import Share
from tiercel.core.shipping import Shipping
from tiercel.core.starts import LONGEST_SECONDS, STARTS_KEPT

NODES = st.sampled_from(["n1", "n2"])
TIER_ORDER = list(TierState)
FINAL_TIERS = {TierState.DELIVERED, TierState.FAILED}
VALUES = st.sampled_from([0.1, 0.79, 0.8, 0.85, 0.9, 0.95, math.nan])


@dataclass
class Told:
    """What has been sent and may be sent again, or late."""

    inputs: list[JobInput] = field(default_factory=list)
    reports: list[tuple[str, DeliveryReport]] = field(default_factory=list)


class JobAndEndpoint(RuleBasedStateMachine):
    """One job, its endpoint, and a world that repeats itself."""

    @initialize(
        continue_after=st.booleans(), retries=st.sampled_from([0, 2]), max_duration=st.sampled_from([None, 5.0, 60.0])
    )
    def create(self, retries: int, max_duration: float | None, *, continue_after: bool) -> None:
        """A job is submitted."""
        ship = Shipping(every=0.05) if continue_after else Shipping()
        spec = make_spec(
            continue_after_last_tier=continue_after,
            report_timeout_seconds=50.0,
            retries=retries,
            ship=ship,
            max_duration_seconds=max_duration,
        )
        self.now = AT
        self.job: Job = machine.create("j1", "alice", spec, AT, queued=1, reason="waits")[0]
        self.endpoint = Endpoint("digits", "alice")
        self.deliveries: dict[str, Delivery] = {}
        self.sequence = 0
        self.told = Told()
        self.history: list[Job] = [self.job]

    # --- The job's inputs ---------------------------------------------------------------------------------------------

    @rule(node=NODES)
    def place(self, node: str) -> None:
        """The scheduler places it, as it does with jobs that wait."""
        if self.job.state is JobState.PENDING:
            self.tell(Assigned(node, Share(0.5, None, "half"), self.job.attempts + 1))

    @rule(node=NODES)
    def move(self, node: str) -> None:
        """The scheduler sends it to another node, or to the same one, whether it can go or not."""
        self.tell(MoveOrdered(node, Share(0.25, None, "moved"), self.job.attempts + 1))

    @rule(weight=st.sampled_from([0.1, 0.5, 1.0]))
    def reshare(self, weight: float) -> None:
        self.tell(ShareUpdated(self.job.run_id, Share(weight, None, "why")))

    @rule(words=st.sampled_from(["", "no room", "too far"]))
    def judge(self, words: str) -> None:
        self.tell(Deferred(words))
        self.tell(TurnCame())
        self.tell(TierFeasibilityChanged(words))

    @rule(
        begun=st.one_of(st.none(), st.floats()),
        environment=st.sampled_from(["", "aa" * 12, "bb" * 12, "no key"]),
        warm=st.booleans(),
    )
    def alive(self, begun: float | None, environment: str, *, warm: bool) -> None:
        """Its node says so, and whatever it likes of how it began."""
        self.tell(RunIsAlive(self.job.run_id, environment=environment, warm=warm, begun_cpu_seconds=begun))

    @rule(value=VALUES, skew=st.sampled_from([-500.0, 0.0, 500.0]))
    def report(self, value: float, skew: float) -> None:
        self.sequence += 1
        metrics = {"accuracy": value}
        self.tell(Reported(self.job.run_id, self.sequence, self.sequence, metrics, self.now + skew, 0.0))

    @rule(value=st.sampled_from([0.8, 0.9, 0.95]))
    def training_ends(self, value: float) -> None:
        """The script is done, with a model that is better than all that it has handed over."""
        self.sequence += 1
        metrics = {"accuracy": value}
        self.tell(Reported(self.job.run_id, self.sequence, self.sequence, metrics, self.now, 0.0, ended=True))

    @rule(seconds=st.floats(0, 100))
    def use(self, seconds: float) -> None:
        self.tell(UsageMeasured(self.job.run_id, seconds))

    @rule(code=st.sampled_from([None, 0, 1, -9]), lost=st.booleans(), carried=st.booleans())
    def exit(self, code: int | None, *, lost: bool, carried: bool) -> None:
        """The broker takes a checkpoint of a job that is being moved or suspended only."""
        self.tell(RunExited(self.job.run_id, code, lost=lost, carried=carried and self.job.is_leaving))

    @rule(node=NODES)
    def node_silent(self, node: str) -> None:
        self.tell(NodeSilent(node))

    @rule(node=NODES)
    def node_gone(self, node: str) -> None:
        self.tell(NodeGone(node))

    @rule(node=NODES, fenced=st.booleans())
    def node_fenced(self, node: str, *, fenced: bool) -> None:
        self.tell(NodeFenced(node, fenced))

    @rule()
    def node_back_without_it(self) -> None:
        self.tell(RunUnknown(self.job.run_id))

    @rule()
    def cancel(self) -> None:
        self.tell(CancelRequested())

    @rule()
    def suspend(self) -> None:
        self.tell(SuspendRequested())

    @precondition(lambda self: self.job.suspended and not self.job.state.is_final)
    @rule()
    def let_go_on(self) -> None:
        self.take(*machine.handle(self.job, ResumeRequested(), Moment.of_one_clock(self.now)))

    @precondition(lambda self: self.job.state.is_final and self.job.state is not JobState.COMPLETED)
    @rule()
    def resume(self) -> None:
        """Another life begins under the same id; what was promised of the one before is over."""
        step = machine.handle(self.job, ResumeRequested(), Moment.of_one_clock(self.now))
        for before, after in zip(self.job.tiers, step[0].tiers, strict=True):
            assert after == before or before.state is TierState.FAILED
        self.history.clear()
        self.take(*step)

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell(Ticked())

    # --- Deliveries ---------------------------------------------------------------------------------------------------

    @rule(tier=st.sampled_from([0, 1, 2]), state=st.sampled_from(DeliveryState), value=VALUES)
    def delivery_heard(self, tier: int, state: DeliveryState, value: float) -> None:
        report = DeliveryReport(state, value, "ab", self.now, "why" if state is DeliveryState.FAILED else "")
        count = self.job.delivery_count(self.job.tiers[tier - 1]) if tier else self.job.best_deliveries
        self.told.reports.append((delivery_id("j1", tier, count), report))
        self.hear(*self.told.reports[-1])

    # --- A world that repeats itself ----------------------------------------------------------------------------------

    @precondition(lambda self: self.told.inputs)
    @rule(data=st.data())
    def repeat_an_input(self, data: st.DataObject) -> None:
        """Anything that was ever said arrives again, however late."""
        self.tell(data.draw(st.sampled_from(self.told.inputs)), again=True)

    @precondition(lambda self: self.told.reports)
    @rule(data=st.data())
    def repeat_a_delivery_report(self, data: st.DataObject) -> None:
        self.hear(*data.draw(st.sampled_from(self.told.reports)))

    @rule()
    def restart(self) -> None:
        """The broker is killed and started again: only what is stored is left, and effects that were lost return."""
        self.take(*machine.after_restart(self.job))

    @precondition(lambda self: any(tier.state not in FINAL_TIERS for tier in self.job.tiers))
    @rule(value=VALUES)
    def killed_between_step_and_effects(self, value: float) -> None:
        """A report's step is stored, the broker is killed before its effects, and started again."""
        self.sequence += 1
        report = Reported(self.job.run_id, self.sequence, 1, {"accuracy": value}, self.now, 0.0)
        self.job, _lost = machine.handle(self.job, report, Moment.of_one_clock(self.now))
        self.restart()

    # --- What the actors do -------------------------------------------------------------------------------------------

    def tell(self, message: JobInput, *, again: bool = False) -> None:
        if not again:
            self.told.inputs.append(message)
        late_placement = isinstance(message, Assigned) and message.attempt <= self.job.attempts
        step = machine.handle(self.job, message, Moment.of_one_clock(self.now))
        if late_placement or (again and self.job.state.is_final and isinstance(message, Assigned)):
            assert step[0] is self.job
        self.take(*step)

    def take(self, job: Job, effects: object) -> None:
        self.job = job
        self.history.append(job)
        assert isinstance(effects, (tuple, list))
        for effect in effects:
            if isinstance(effect, RequestDelivery):
                self.request(effect)
            elif isinstance(effect, AbandonDelivery):
                failure = DeliveryReport(DeliveryState.FAILED, reason=effect.reason)
                self.hear(self.delivery_of(effect.tier), failure)

    def delivery_of(self, tier: TierStatus) -> str:
        return delivery_id("j1", tier.number, self.job.delivery_count(tier))

    def request(self, effect: RequestDelivery) -> None:
        tier = effect.tier
        known = self.deliveries.get(self.delivery_of(tier))
        if known is None:
            count = self.job.delivery_count(tier)
            self.endpoint, known = endpoint_machine.request(
                self.endpoint, "j1", tier.number, tier.tier.target, self.now, count=count
            )
            self.deliveries[known.id] = known
        if known.state.is_final:
            self.delivery_ended(known)

    def hear(self, known_id: str, report: DeliveryReport) -> None:
        known = self.deliveries.get(known_id)
        if known is None:
            return
        self.endpoint, after = endpoint_machine.progress(
            self.endpoint, known, report, metric="accuracy", node_id="n1", now=self.now
        )
        self.deliveries[known_id] = after
        if after.state.is_final:
            self.delivery_ended(after)

    def delivery_ended(self, delivery: Delivery) -> None:
        version = delivery.version if delivery.state is DeliveryState.DELIVERED else None
        self.tell(DeliveryEnded(delivery.tier, version, delivery.value, self.now, delivery.reason))

    # --- Promises -----------------------------------------------------------------------------------------------------

    @invariant()
    def a_final_state_is_final(self) -> None:
        ends = [job.state for job in self.history if job.state.is_final]
        assert len(set(ends)) <= 1
        if ends:
            assert self.job.state is ends[0]
            assert self.job.finished_at is not None

    @invariant()
    def a_final_job_holds_nothing(self) -> None:
        if self.job.state.is_final or self.job.state in {JobState.PENDING, JobState.SUSPENDED}:
            assert not self.job.run_active
        if self.job.state is JobState.SUSPENDED:
            assert self.job.suspended
            assert not self.job.concerns_scheduler
        assert not (self.job.state is JobState.PENDING and self.job.suspended)
        if self.job.state in {JobState.STARTING, JobState.RUNNING, JobState.DISCONNECTED}:
            assert self.job.run_active
            assert self.job.node_id

    @invariant()
    def a_stop_has_an_outcome(self) -> None:
        assert (self.job.state is not JobState.STOPPING) or self.job.stop_outcome is not None or self.job.is_leaving
        if self.job.state.is_final:
            assert self.job.stop_outcome is self.job.state

    @invariant()
    def tiers_never_go_back(self) -> None:
        for earlier, later in zip(self.history, self.history[1:], strict=False):
            for before, after in zip(earlier.tiers, later.tiers, strict=True):
                if before.state in FINAL_TIERS:
                    assert after == before
                elif before.state is TierState.REACHED:
                    assert after.state in {TierState.REACHED, *FINAL_TIERS}
                    assert after.reached_seconds == before.reached_seconds
        del self.history[:-1]

    @invariant()
    def easier_tiers_are_reached_first(self) -> None:
        reached = [TIER_ORDER.index(tier.state) >= TIER_ORDER.index(TierState.REACHED) for tier in self.job.tiers]
        opened_again = any(tier.failed_deliveries for tier in self.job.tiers)
        assert opened_again or reached == sorted(reached, reverse=True)

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert len(self.job.earlier.lost_at) <= MAX_LOST_RUNS
        assert self.job.retries <= self.job.spec.retries

    @invariant()
    def its_runs_took_no_longer_than_there_was_time(self) -> None:
        run = self.job.run
        spent = self.job.earlier.seconds + (run.time.seconds if run is not None else 0.0)
        assert 0.0 <= spent <= self.now - AT + 1e-6
        if run is not None and run.finishing_from is not None:
            limit = self.job.spec.max_duration_seconds
            assert limit is not None
            assert self.job.earlier.seconds + run.finishing_from >= limit

    @invariant()
    def what_its_runs_took_to_get_to_work_is_bounded_whatever_is_said_of_it(self) -> None:
        assert len(self.job.starts) <= STARTS_KEPT
        assert len(self.job.environments) <= MAX_ENVIRONMENTS
        for start in self.job.starts:
            for seconds in (start.seconds, start.cpu_seconds, start.stop_seconds or 0.0):
                assert 0.0 <= seconds <= min(self.now - AT + 1e-6, LONGEST_SECONDS)

    @invariant()
    def a_move_ends_with_its_run_and_what_is_carried_is_from_an_earlier_one(self) -> None:
        assert self.job.run is None or self.job.run.move is None or self.job.run_active
        assert self.job.run is None or self.job.carried_run != self.job.run_id
        assert self.job.attempts >= self.job.earlier.migrations + self.job.earlier.lost

    @invariant()
    def one_delivery_and_one_version_for_each_tier(self) -> None:
        numbers = [delivery.version for delivery in self.deliveries.values() if delivery.version]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert self.endpoint.next_version == len(numbers) + 1
        served = [version.version for version in self.endpoint.versions]
        assert served == sorted(set(served))
        assert (self.endpoint.live_version is not None) == bool(served)
        best = max((each.value for each in self.endpoint.versions if each.value is not None), default=None)
        assert [version.value for version in self.endpoint.live] == ([] if best is None else [best]), "never worse"
        beyond = () if self.job.best is None else (self.job.best,)
        for tier in (*self.job.tiers, *beyond):
            delivery = self.deliveries.get(self.delivery_of(tier))
            if tier.state is TierState.DELIVERED:
                assert delivery is not None
                assert delivery.state is DeliveryState.DELIVERED
                assert tier.version == delivery.version
            if tier.state is TierState.REACHED:
                assert delivery is not None, "what is reached is asked for"
                assert not delivery.state.is_final, "what has ended is known to the job"

    @invariant()
    def times_make_sense(self) -> None:
        for tier in self.job.tiers:
            for seconds in (tier.reached_seconds, tier.delivered_seconds):
                assert seconds is None or 0.0 <= seconds <= self.now - AT


JobAndEndpoint.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestJobAndEndpoint = JobAndEndpoint.TestCase
