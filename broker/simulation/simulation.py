"""The discrete-event simulation: a virtual clock, the live broker's policies, loop and job machine, simulated machines.

Between two events everything goes on at constant speed, so the next report of a run is known exactly. An event changes
the shares of few nodes; only those are worked out anew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import (
    AbandonDelivery,
    Assigned,
    DeclareRun,
    Deferred,
    DeliveryEnded,
    JobEffect,
    JobInput,
    MoveOrdered,
    Preempted,
    Reported,
    RequestDelivery,
    Reschedule,
    ShareUpdated,
    TierFeasibilityChanged,
)
from tiercel.broker.scheduling import loop
from tiercel.broker.scheduling.forecast.given import Given
from tiercel.broker.scheduling.history import History, RunCurve
from tiercel.broker.scheduling.interface import Assignment, Snapshot, Trigger
from tiercel.broker.scheduling.options import Options
from tiercel.broker.scheduling.registry import AnyPolicy, create_policy
from tiercel.broker.scheduling.restarts import Restarts
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot
from tiercel.broker.scheduling.views import leaving_of, nodes_without
from tiercel.broker.simulation.agents import SimulatedAgents
from tiercel.broker.simulation.events import EventQueue
from tiercel.broker.simulation.incoming import Incoming
from tiercel.broker.simulation.nodes import SimulatedNode
from tiercel.broker.simulation.outcomes import outcome_of
from tiercel.broker.simulation.result import JobOutcome, Result
from tiercel.broker.simulation.running import SimulatedJob
from tiercel.broker.simulation.scenario import Scenario, SimulationError
from tiercel.broker.simulation.scheduler import Decided, SimulatedScheduler
from tiercel.broker.simulation.serving import Serving
from tiercel.core.jobs import Job, Observation, TierState
from tiercel.core.moments import Moment
from tiercel.core.run_records import RunRecord

# Passes in a row that place nothing while nothing runs and nothing will arrive: the policy will never place it.
_IDLE_PASSES = 200


def simulate(scenario: Scenario, policy: AnyPolicy | str, seed: int = 0, options: Options | None = None) -> Result:
    """Simulate a scenario under a policy.

    The same scenario, policy and seed give the same result, and for one seed every policy meets the same jobs, noise
    and requests.

    Args:
        scenario: What to simulate.
        policy: The policy, or its name.
        seed: Chooses jobs, arrivals, noise and requests among those that the scenario allows.
        options: The policy's options, if it is given by name.

    Raises:
        InvalidSpecError: There is no such policy or option.
        SimulationError: A job fits on no node, or the policy leaves jobs waiting for ever.
        UnsoundPlanError: The policy made a plan that the live broker would refuse.
    """
    chosen = create_policy(policy, options) if isinstance(policy, str) else policy
    return Simulation(scenario, chosen, seed).run()


class Simulation:
    """One simulation; see :func:`simulate`.

    Args:
        seed: See :func:`simulate`.
    """

    def __init__(self, scenario: Scenario, policy: AnyPolicy, seed: int) -> None:
        self._scenario = scenario
        self._policy_name = policy.name
        self._seed = seed
        self._events = EventQueue()
        self._letters: deque[tuple[SimulatedJob, JobInput]] = deque()
        machines = scenario.machines
        nodes = {
            view.id: SimulatedNode(
                view,
                machines.colocation,
                machines.overhead_cores,
                scenario.record_usage,
                speed=scenario.speeds.get(view.id, 1.0),
                given=scenario.given.get(view.id, 1.0),
            )
            for view in scenario.nodes
        }
        self._node_views = tuple(sorted(scenario.nodes, key=lambda view: view.id))
        self._incoming = Incoming(scenario, seed, self._node_views)
        self._active: dict[str, SimulatedJob] = {}
        self._leaving: dict[str, SimulatedJob] = {}
        self._outcomes: list[JobOutcome] = []
        self._history = History(scenario.history, scenario.similar)
        self._restarts = Restarts()
        self._given = Given()
        self._serving = Serving(scenario, nodes, seed)
        self._agents = SimulatedAgents(scenario, nodes, self._events, self._serving, self._post)
        self._scheduler = SimulatedScheduler(policy, scenario.loop, check_plans=scenario.check_plans)
        self._wakes_at = math.inf
        self._idle_passes = 0

    def run(self) -> Result:
        """Run it to the end."""
        if self._incoming:
            self._events.at(self._incoming.next_at, self._arrive)
        if self._scenario.endpoints:
            self._events.at(0.0, self._step_endpoints)
        self._take_over()
        while self._goes_on():
            self._next_moment()
        self._outcomes += [outcome_of(sim) for sim in self._active.values()]
        self._serving.finish(self._events.now)
        return Result(
            scenario=self._scenario.name,
            policy=self._policy_name,
            seed=self._seed,
            jobs=tuple(sorted(self._outcomes, key=lambda outcome: outcome.id)),
            endpoints=self._serving.outcomes(),
            class_counts=tuple(self._serving.class_counts),
            decisions=tuple(self._scheduler.decisions),
            ended_at=self._events.now,
            devices=sum(len(view.accelerators) for view in self._node_views),
        )

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        now = self._events.now
        unfinished = self._active or self._incoming or now < self._scenario.duration_seconds
        return bool(unfinished) and now < self._scenario.horizon_seconds

    def _next_moment(self) -> None:
        """Everything that happens at the next moment at which anything does."""
        self._wake_scheduler()
        self._events.advance()
        while (action := self._events.pop()) is not None:
            action()
            self._deliver_letters()
        self._agents.settle()
        decided = self._scheduler.decide(self._events.now, self._observe)
        if decided is not None:
            self._carry_out(decided)
            self._agents.settle()

    def _wake_scheduler(self) -> None:
        when = max(self._scheduler.next_at, self._events.now)
        if when < self._wakes_at:
            self._wakes_at = when
            self._events.at(when, partial(self._wake, when))

    def _wake(self, when: float) -> None:
        """Let the moment come; whether the policy is due is seen at its end."""
        if when == self._wakes_at:
            self._wakes_at = math.inf

    # --- Jobs ---------------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Go on with the jobs that there are."""
        for underway in self._scenario.underway:
            sim = underway.begin()
            self._active[sim.job.id] = sim
            if sim.job.run_active:
                self._agents.take_over(sim)
        if self._active:
            self._scheduler.trigger(Trigger.ARRIVAL, 0.0)
            self._agents.settle()

    def _arrive(self) -> None:
        sim, effects = self._incoming.take(self._events.now)
        if self._incoming:
            self._events.at(self._incoming.next_at, self._arrive)
        self._active[sim.job.id] = sim
        self._carry_out_effects(sim, effects)

    def _post(self, sim: SimulatedJob, letter: JobInput) -> None:
        self._letters.append((sim, letter))

    def _deliver_letters(self) -> None:
        while self._letters:
            sim, letter = self._letters.popleft()
            self._step(sim, letter)

    def _step(self, sim: SimulatedJob, letter: JobInput) -> None:
        """One step of a job's machine, and what follows from it."""
        before = sim.job
        job, effects = machine.handle(before, letter, Moment.of_one_clock(self._events.now))
        if job is before and not effects:
            return
        sim.job, sim.view = job, None
        if job.starts != before.starts:
            self._restarts.put(sim.planned.workload.name, job.id, job.starts)
        if job.is_moving:
            self._leaving[job.id] = sim
        else:
            self._leaving.pop(job.id, None)
        if isinstance(letter, Reported) and job.last_sequence != before.last_sequence:
            value = letter.metrics[job.spec.metric]
            seen = Observation(letter.at, letter.epoch, value, job.cpu_seconds, sim.accelerator_seconds)
            sim.observations.append(seen)
        self._carry_out_effects(sim, effects)
        if not _is_topped(before) and _is_topped(job):
            self._remember(sim)
        if job.state.is_final and all(tier.state is not TierState.REACHED for tier in job.tiers):
            self._retire(sim)

    def _retire(self, sim: SimulatedJob) -> None:
        if self._active.pop(sim.job.id, None) is None:
            return
        self._remember(sim)
        self._serving.forget(sim.job.spec.endpoint)
        self._outcomes.append(outcome_of(sim))

    def _remember(self, sim: SimulatedJob) -> None:
        workload = sim.planned.workload
        curve = RunCurve(workload.direction, sim.observations).points()
        if curve:  # one without reports teaches nothing
            self._history.add(RunRecord(sim.job.id, workload.name, self._events.now, curve, similar=workload.similar))

    def _carry_out_effects(self, sim: SimulatedJob, effects: Sequence[JobEffect]) -> None:
        for effect in effects:
            match effect:
                case Reschedule(trigger):
                    self._scheduler.trigger(Trigger(trigger), self._events.now)
                case DeclareRun():
                    self._agents.declare_run(sim)
                case RequestDelivery(tier) if sim.job.run_active:
                    self._agents.request_delivery(sim, tier.number)
                case AbandonDelivery(tier, reason):
                    self._post(sim, DeliveryEnded(tier.number, None, None, self._events.now, reason))
                case _:
                    pass  # news for people, and runs that are gone already

    # --- Decisions ----------------------------------------------------------------------------------------------------

    def _observe(self, trigger: Trigger) -> Snapshot:
        now = self._events.now
        period = self._scenario.machines.usage_seconds
        jobs = tuple([sim.present(now, period) for sim in self._active.values() if sim.visible])
        endpoints = self._serving.views(now)
        nodes = self._node_views
        if self._leaving:
            leaving = (leaving_of(sim.job) for sim in self._leaving.values())
            nodes = nodes_without(nodes, (each for each in leaving if each is not None))
        true_work = {view.id: self._active[view.id].true_work for view in jobs}
        snapshot = OracleSnapshot(
            now,
            trigger,
            jobs,
            nodes,
            endpoints,
            self._history.by_workload(),
            self._restarts.by_workload(),
            self._history.by_similar(),
            self._given.parts(),
            true_work=true_work,
        )
        self._given = self._given.after(snapshot)
        return snapshot

    def _carry_out(self, decided: Decided) -> None:
        for assignment in decided.changed:
            self._assign(assignment)
        for name in self._serving.reshare(decided.plan.endpoint_shares):
            self._agents.stir(name)
        for job_id, reason in decided.plan.waiting.items():
            self._tell(job_id, Deferred(reason))
        for job_id, reason in loop.changed_verdicts(decided.plan, decided.snapshot):
            self._tell(job_id, TierFeasibilityChanged(reason))
        for job_id, why in decided.plan.suspended.items():
            self._tell(job_id, Preempted(self._active[job_id].job.run_id, why))
        self._deliver_letters()
        self._watch_for_standstill(decided)

    def _assign(self, assignment: Assignment) -> None:
        sim = self._active[assignment.job_id]
        job = sim.job
        if not job.run_active:
            self._tell(job.id, Assigned(assignment.node_id, assignment.share, job.attempts + 1))
        elif job.is_moving or assignment.node_id == job.node_id:
            self._tell(job.id, ShareUpdated(job.run_id, assignment.share))
        else:
            self._tell(job.id, MoveOrdered(assignment.node_id, assignment.share, job.attempts + 1))

    def _tell(self, job_id: str, letter: JobInput) -> None:
        sim = self._active.get(job_id)
        if sim is not None:
            self._post(sim, letter)

    def _watch_for_standstill(self, decided: Decided) -> None:
        stands = bool(decided.snapshot.jobs) and not (self._agents.runs or self._incoming or decided.changed)
        self._idle_passes = self._idle_passes + 1 if stands else 0
        if self._idle_passes > _IDLE_PASSES:
            waiting = ", ".join(list(self._active)[:5])
            raise SimulationError(f"policy {self._policy_name} leaves jobs waiting though nothing runs: {waiting}")

    # --- Endpoints ----------------------------------------------------------------------------------------------------

    def _step_endpoints(self) -> None:
        for node_id in self._serving.step(self._events.now):
            self._agents.stir(node_id)
        if self._events.now < self._scenario.duration_seconds:
            following = min(self._events.now + self._scenario.step_seconds, self._scenario.duration_seconds)
            self._events.at(following, self._step_endpoints)


def _is_topped(job: Job) -> bool:
    """Whether it has reached its last tier: what can be learnt of it for its successors is known."""
    return job.tiers[-1].state in {TierState.REACHED, TierState.DELIVERED}
