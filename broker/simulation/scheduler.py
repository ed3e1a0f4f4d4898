"""The policy and its loop under a virtual clock, wired as the live broker's scheduler is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tiercel.broker.scheduling import deciding, loop
from tiercel.broker.scheduling.draining import without_leavers
from tiercel.broker.scheduling.interface import Assignment, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.scheduling.registry import AnyPolicy
from tiercel.broker.simulation.result import Pass
from tiercel.broker.simulation.scenario import UnsoundPlanError

_SAME_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class Decided:
    """What a pass decided."""

    snapshot: Snapshot  # what the policy saw
    plan: Plan  # what it made of that
    changed: tuple[Assignment, ...]  # the assignments that are worth carrying out


class SimulatedScheduler:
    """Runs a policy on events and on an interval; keeps its state and how long it took.

    Args:
        check_plans: Whether to refuse unsound plans.
    """

    def __init__(self, policy: AnyPolicy, settings: LoopSettings, *, check_plans: bool) -> None:
        self._policy = policy
        self._state = policy.initial_state()
        self._settings = settings
        self._loop = loop.start(settings, 0.0)
        self._check_plans = check_plans
        self.decisions: list[Pass] = []

    @property
    def next_at(self) -> float:
        """When to look next, unless something happens before."""
        return self._loop.next_at

    def trigger(self, trigger: Trigger, now: float) -> None:
        """Something happened that should not wait for the next interval."""
        self._loop = loop.triggered(self._loop, trigger, self._settings, now)

    def decide(self, now: float, observe: Callable[[Trigger], Snapshot]) -> Decided | None:
        """Ask the policy if it is time to.

        Raises:
            UnsoundPlanError: The plan is one that the live broker would refuse.
        """
        due = loop.due_trigger(self._loop, now)
        if due is None:
            return None
        snapshot = observe(due)
        begin = time.perf_counter()
        decision = deciding.decide(self._policy, self._state, snapshot)
        plan, self._state = decision.plan, decision.state
        seconds = time.perf_counter() - begin
        problems = decision.problems() if self._check_plans else []
        if problems:
            raise UnsoundPlanError(f"the plan of policy {self._policy.name} at {now:.3f} s: {'; '.join(problems[:5])}")
        plan = without_leavers(plan, snapshot)
        changed = loop.changed_assignments(plan, snapshot)
        self.decisions.append(Pass(now, len(snapshot.jobs), len(changed), seconds))
        moved = bool(changed) or _endpoints_changed(plan, snapshot)
        self._loop = loop.ran(self._loop, due, self._settings, now, changed=moved, next_at=plan.next_at)
        return Decided(snapshot, plan, changed)


def _endpoints_changed(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether endpoints get something else, as the live broker sees it: shares equal to six digits are the same."""
    for endpoint in snapshot.endpoints:
        share = plan.endpoint_shares.get(endpoint.name)
        if (share is None) != (endpoint.share is None):
            return True
        if share is not None and not share.same_limits(endpoint.share, tolerance=_SAME_WEIGHT):
            return True
    return False
