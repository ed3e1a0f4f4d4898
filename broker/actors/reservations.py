"""What the scheduler has decided for jobs that have not confirmed it yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import Assigned, MoveOrdered, ShareUpdated

if TYPE_CHECKING:
    from tiercel.broker.actors.scheduler_messages import JobObserved
    from tiercel.broker.lifecycle.job_events import JobInput
    from tiercel.broker.scheduling.interface import Assignment, JobView


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was decided for a job and is not confirmed yet."""

    assignment: Assignment
    attempt: int  # number of the run that it is about
    moves: bool = False  # from a node to another

    def is_open(self, observed: JobObserved, view: JobView) -> bool:
        """Whether the job, as it is seen now, has not taken it in yet."""
        if self.moves and observed.leaving and view.node_id == self.assignment.node_id:
            return not self.assignment.share.same_limits(view.share)
        if observed.attempts != self.attempt:
            return observed.attempts < self.attempt
        return not (view.movable or self.assignment.share.same_limits(view.share))

    def messages(self, observed: JobObserved) -> tuple[JobInput, ...]:
        """What to tell the job; telling it twice is harmless."""
        node_id, share = self.assignment.node_id, self.assignment.share
        updated = ShareUpdated(f"{self.assignment.job_id}-{self.attempt}", share)
        if observed.attempts == self.attempt:
            return (updated,)
        # The second one counts if the job has been told of the placement already, with another share.
        order = MoveOrdered if self.moves else Assigned
        return (order(node_id, share, self.attempt), updated)
