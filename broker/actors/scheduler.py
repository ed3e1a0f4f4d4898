"""The actor that runs the policy: keeps what the others show it, plans, and tells the jobs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tiercel.broker.actors.endpoint_states import (
    EndpointObserved,
    EndpointsMeasured,
    EndpointStates,
    ShareMoved,
    endpoint_of,
)
from tiercel.broker.actors.fair_share import FairShare
from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.reservations import Reservation
from tiercel.broker.actors.scheduler_messages import (
    JobObserved,
    MoveRefused,
    NodeObserved,
    PolicySet,
    RunsRemembered,
    SchedulerMessage,
    SchedulerTicked,
    SomethingHappened,
    StartsMeasured,
)
from tiercel.broker.actors.variant_homes import with_homes
from tiercel.broker.lifecycle.job_events import Deferred, Preempted, TierFeasibilityChanged
from tiercel.broker.scheduling import deciding, loop
from tiercel.broker.scheduling.accelerators import held_by
from tiercel.broker.scheduling.draining import is_emptying, staying, without_leavers
from tiercel.broker.scheduling.forecast.given import Given
from tiercel.broker.scheduling.forecast.times import TierTime, tier_times
from tiercel.broker.scheduling.history import History
from tiercel.broker.scheduling.interface import (
    Assignment,
    EndpointView,
    NodeView,
    Plan,
    Policy,
    Snapshot,
    Trigger,
    earlier_runs,
)
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.scheduling.restarts import Restarts
from tiercel.broker.scheduling.views import Leaving, nodes_without
from tiercel.core.errors import CannotWriteError, wrong_field
from tiercel.core.events import EndpointShareChanged, ShareDecision
from tiercel.core.runs import run_id_of
from tiercel.core.shares import Share
from tiercel.core.tenant_use import TenantUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.lifecycle.job_events import JobInput

logger = logging.getLogger(__name__)

_NO_LIMIT = Share(1.0, reason="not limited: it may use whatever its node has")


class SchedulerActor(Actor[SchedulerMessage]):
    """Runs a policy on events and on an interval.

    What it decides is reserved at once: until a job confirms it, the scheduler goes on seeing the job where it was put
    and with the share that it was given, whatever older news of the job is still on its way.

    Args:
        declare_endpoint_shares: Tells a node what its endpoints may use, and in how many seconds they should answer,
            as a whole.
        use_of: What a tenant has used, as of now.
    """

    def __init__(
        self,
        policy: Policy[Any],
        settings: LoopSettings,
        journal: Journal,
        clock: Clock,
        send_to_job: Callable[[str, JobInput], None],
        declare_endpoint_shares: Callable[[str, Mapping[str, Share], Mapping[str, float]], None] = lambda *_: None,
        use_of: Callable[[str], TenantUse] = TenantUse,
    ) -> None:
        super().__init__("scheduler")
        self._policy = policy
        self._policy_state = policy.initial_state()
        self._settings = settings
        self._loop = loop.start(settings, clock.alive())
        self._journal = journal
        self._clock = clock
        self._send_to_job = send_to_job
        self._fair_share = FairShare(use_of)
        self._jobs: dict[str, JobObserved] = {}
        self._nodes: dict[str, NodeView] = {}
        self._endpoints = EndpointStates(declare_endpoint_shares)
        self._reserved: dict[str, Reservation] = {}
        # Numbers of the runs that were told to stop for another job, until that is seen.
        self._suspending: dict[str, int] = {}
        self._history = History()
        self._restarts = Restarts()
        self._given = Given()
        # Why jobs have what they have, as of the latest plan; a share whose limits stay is not decided anew.
        self._reasons: dict[str, tuple[str, str]] = {}
        self._staying: Mapping[str, str] = {}
        # Why jobs were not shown to the policy when it was asked last.
        self._held_back: dict[str, str] = {}

    @property
    def policy_name(self) -> str:
        """Of the policy that is asked."""
        return self._policy.name

    @property
    def endpoints(self) -> EndpointStates:
        """What is known of endpoints; only to be read."""
        return self._endpoints

    def tier_times(self, job_id: str) -> tuple[TierTime, ...]:
        """When a job's tiers may be reached, by what earlier runs of the same program needed; empty while none tell."""
        view = seen.view if (seen := self._jobs.get(job_id)) is not None else None
        if view is None:
            return ()
        return tier_times(view, earlier_runs(view, self._history.by_workload(), self._history.by_similar()))

    def present(self) -> Snapshot:
        """What the policy would be shown now; to ask changes nothing."""
        held_back = self._held_back
        snapshot = self._snapshot(Trigger.INTERVAL, self._endpoints.last_views())
        self._held_back = held_back
        return snapshot

    def reason_for(self, job_id: str, node_id: str) -> str:
        """Why a job has its share of a node, by the latest plan; empty where that says nothing of it."""
        planned_for, reason = self._reasons.get(job_id, ("", ""))
        return reason if planned_for == node_id else ""

    def fair_factor(self, tenant: str) -> float:
        """How many times as much as its weight says a tenant counts for, since others have used more or less."""
        return self._fair_share.factor_of(tenant)

    def reason_to_stay(self, job_id: str) -> str:
        """Why a job that is to leave its node found no other one, by the latest plan; empty where it was not sought."""
        return self._staying.get(job_id, "")

    def check_policy(self, policy: Policy[Any]) -> None:
        """Have another policy plan for what is the case, and carry nothing out.

        Raises:
            InvalidSpecError: It fails, or its plan cannot be carried out.
        """
        try:
            problems = deciding.decide(policy, policy.initial_state(), self.present()).problems()
        except Exception as error:
            logger.exception("policy %s was to be set and failed", policy.name)
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            why = "; ".join(problems)
            raise wrong_field(
                "name", f"policy {policy.name!r} cannot plan for the present state ({why}); {self._policy.name!r} stays"
            )

    async def receive(self, message: SchedulerMessage) -> None:
        """Take in news, and plan when it is time and no more news is waiting."""
        match message:
            case JobObserved() | NodeObserved():
                self._observe(message)
            case EndpointObserved() | EndpointsMeasured():
                self._endpoints.on_news(message)
            case RunsRemembered() | StartsMeasured():
                self._remember(message)
            case MoveRefused(job_id):
                self._free_move(job_id)
            case SomethingHappened(trigger):
                self._loop = loop.triggered(self._loop, trigger, self._settings, self._clock.alive())
            case PolicySet(policy):
                self._policy, self._policy_state = policy, policy.initial_state()
                self._loop = loop.triggered(self._loop, Trigger.ARRIVAL, self._settings, self._clock.alive())
            case SchedulerTicked():
                pass
        if self._is_empty:
            due = loop.due_trigger(self._loop, self._clock.alive())
            if due is not None and self._journal.is_writable:
                await self._plan_or_leave_it(due)

    def _observe(self, message: JobObserved | NodeObserved) -> None:
        if isinstance(message, NodeObserved):
            if message.view is None:
                self._nodes.pop(message.node_id, None)
            else:
                self._nodes[message.node_id] = message.view
            return
        reservation = self._reserved.get(message.job_id)
        if message.view is None or message.view.stopping or message.attempts != self._suspending.get(message.job_id):
            self._suspending.pop(message.job_id, None)
        if message.view is None:
            self._jobs.pop(message.job_id, None)
        else:
            self._jobs[message.job_id] = message
        if reservation is not None and (message.view is None or not reservation.is_open(message, message.view)):
            del self._reserved[message.job_id]

    def _remember(self, message: RunsRemembered | StartsMeasured) -> None:
        if isinstance(message, StartsMeasured):
            self._restarts.put(message.workload, message.job_id, message.starts)
            return
        self._history.add(*message.records)
        for record in message.records:
            self._restarts.put(record.workload, record.job_id, record.starts)

    def _free_move(self, job_id: str) -> None:
        self._suspending.pop(job_id, None)
        if job_id in self._reserved and self._reserved[job_id].moves:
            del self._reserved[job_id]

    async def _plan_or_leave_it(self, due: Trigger) -> None:
        """Plan; while nothing can be written, all keep what they have and news are taken in all the same."""
        before = self._policy_state
        try:
            await self._plan(due)
        except CannotWriteError as error:
            self._policy_state = before
            logger.warning("What was planned is not carried out: %s", error.message)

    async def _plan(self, trigger: Trigger) -> None:
        if trigger is Trigger.INTERVAL:
            for job_id in self._reserved:
                self._send_reserved(job_id)
        snapshot = self._snapshot(trigger, self._endpoints.views(self._nodes))
        self._given = self._given.after(snapshot)
        changed: tuple[Assignment, ...] = ()
        shares_moved: list[ShareMoved] = []
        plan = self._ask_policy(snapshot)
        if plan is not None:
            changed = loop.changed_assignments(plan, snapshot)
            self._reasons = {each.job_id: (each.node_id, each.share.reason) for each in plan.assignments}
            await self._carry_out(changed, trigger)
            self._send_verdicts(plan, snapshot)
            self._suspend(plan)
            shares_moved = self._endpoints.decide(plan.endpoint_shares, snapshot.endpoints)
            await self._send_moved(shares_moved, trigger)
        for job_id, reason in self._held_back.items():
            self._send_to_job(job_id, Deferred(reason))
        alive = self._clock.alive()
        # The policy's clock may be set meanwhile; the loop's is not.
        wanted = plan.next_at if plan is not None else None
        self._loop = loop.ran(
            self._loop,
            trigger,
            self._settings,
            alive,
            changed=bool(changed or shares_moved) or is_emptying(snapshot),
            next_at=None if wanted is None else alive + (wanted - snapshot.now),
        )
        if self._held_back and changed:  # those who waited for a node to be chosen may go there now
            self._loop = loop.triggered(self._loop, Trigger.ARRIVAL, self._settings, self._clock.alive())

    def _ask_policy(self, snapshot: Snapshot) -> Plan | None:
        try:
            decision = deciding.decide(self._policy, self._policy_state, snapshot)
            plan, self._policy_state = decision.plan, decision.state
            problems = decision.problems()
        except Exception:  # whatever a policy does wrong, jobs keep what they have
            logger.exception("policy %s failed; it is asked again later", self._policy.name)
            return None
        if problems:
            logger.error("The plan of policy %s is not carried out: %s", self._policy.name, "; ".join(problems))
            return None
        self._staying = staying(plan, snapshot)
        return without_leavers(plan, snapshot)

    def _snapshot(self, trigger: Trigger, endpoints: tuple[EndpointView, ...]) -> Snapshot:
        jobs = []
        held: list[Leaving] = []
        for job_id, observed in self._jobs.items():
            view = observed.view
            if view is None:
                continue
            reservation = self._reserved.get(job_id)
            leaving, devices = observed.leaving, observed.leaving_accelerators
            if reservation is not None:
                assignment = reservation.assignment
                if reservation.moves and not leaving:
                    leaving, devices = view.node_id, tuple(each.id for each in held_by(view))
                view = replace(
                    view, node_id=assignment.node_id, share=assignment.share, movable=False, migratable=False
                )
            if job_id in self._suspending:
                view = replace(view, stopping=True, migratable=False)
            if leaving:
                held.append(Leaving(leaving, view.resources.memory_bytes, devices))
            jobs.append(view)
        shown, self._held_back = with_homes(
            self._fair_share.weighted(jobs, self._nodes.values()), self._endpoints.node_of
        )
        return Snapshot(
            self._clock.now(),
            trigger,
            tuple(sorted(shown, key=lambda job: job.id)),
            nodes_without((node for _, node in sorted(self._nodes.items())), held),
            endpoints,
            self._history.by_workload(),
            self._restarts.by_workload(),
            self._history.by_similar(),
            self._given.parts(),
        )

    async def _carry_out(self, assignments: Sequence[Assignment], trigger: Trigger) -> None:
        if not assignments:
            return
        now, policy = self._clock.now(), self._policy.name
        decisions = [
            ShareDecision(each.job_id, now, policy, trigger.value, each.node_id, each.share) for each in assignments
        ]
        await self._journal.commit_or_refuse(Commit(decisions=decisions))
        for assignment in assignments:
            self._reserve(assignment)
            self._send_reserved(assignment.job_id)

    async def _send_moved(self, moved: Sequence[ShareMoved], trigger: Trigger) -> None:
        """Remember decisions about endpoints, and let others know."""
        if not moved:
            return
        now, policy = self._clock.now(), self._policy.name
        decisions = [
            ShareDecision(
                "", now, policy, trigger.value, each.view.node_id, each.share or _NO_LIMIT, endpoint_of(each.view.name)
            )
            for each in moved
        ]
        # What is announced of an endpoint is what it may use of its home.
        news = [
            EndpointShareChanged(each.view.name, each.view.tenant, now, each.view.node_id, each.share)
            for each in moved
            if endpoint_of(each.view.name) == each.view.name
        ]
        try:
            await self._journal.commit_or_refuse(Commit(decisions=decisions, news=news))
        except CannotWriteError as error:  # the nodes were told already, and that is what counts
            logger.warning("Decisions about %d endpoints are not remembered: %s", len(moved), error.message)

    def _reserve(self, assignment: Assignment) -> None:
        observed = self._jobs[assignment.job_id]
        earlier = self._reserved.get(assignment.job_id)
        if earlier is not None:
            self._reserved[assignment.job_id] = replace(earlier, assignment=assignment)
            return
        view = observed.view
        places = view is not None and view.movable
        moves = view is not None and not view.movable and view.node_id != assignment.node_id
        self._reserved[assignment.job_id] = Reservation(assignment, observed.attempts + (places or moves), moves)

    def _send_reserved(self, job_id: str) -> None:
        for message in self._reserved[job_id].messages(self._jobs[job_id]):
            self._send_to_job(job_id, message)

    def _suspend(self, plan: Plan) -> None:
        """Have jobs stop for others, and see them stopping from now on."""
        for job_id, why in plan.suspended.items():
            attempt = self._suspending[job_id] = self._jobs[job_id].attempts
            self._send_to_job(job_id, Preempted(run_id_of(job_id, attempt), why))

    def _send_verdicts(self, plan: Plan, snapshot: Snapshot) -> None:
        for job_id, reason in plan.waiting.items():
            self._send_to_job(job_id, Deferred(reason))
        for job_id, reason in loop.changed_verdicts(plan, snapshot):
            self._send_to_job(job_id, TierFeasibilityChanged(reason))
