"""What is done with every policy, live and simulated: the pure steps before and after it, and the check of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiercel.broker.scheduling.allocate import with_accelerators
from tiercel.broker.scheduling.classes import with_classes
from tiercel.broker.scheduling.draining import with_leavers
from tiercel.broker.scheduling.interface import Plan, Policy, Snapshot
from tiercel.broker.scheduling.own_priority import with_own_priorities
from tiercel.broker.scheduling.validation import check_plan


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of asking a policy."""

    shown: Snapshot  # what the policy saw: jobs that are to leave their node wait for another
    plan: Plan  # complete, and not checked
    state: Any  # of the policy, for the next time

    def problems(self) -> list[str]:
        """What is wrong with the plan; see :func:`.check_plan`."""
        return check_plan(self.plan, self.shown)


def decide(policy: Policy[Any], state: Any, snapshot: Snapshot) -> Decision:
    """Ask a policy, and complete its plan: accelerators, each tenant's own priorities, classes."""
    shown = with_leavers(snapshot)
    plan, state = policy.plan(shown, state)
    plan = with_own_priorities(with_accelerators(plan, shown), shown)
    return Decision(shown, with_classes(plan, shown), state)
