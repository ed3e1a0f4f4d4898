"""Which accelerators of a node are held by whom, and which ones a job that comes gets.

What a job holds is fixed while it runs: accelerators, and memory on each. So choosing them is part of placement, and an
accelerator's memory is promised as a node's is: never twice. A job that does not say how much it needs gets an
accelerator that nobody else is on, and all of it.

Of the accelerators that have room, the one with the fewest jobs is chosen, and of those alike the one with the least
room left. Best fit alone would keep accelerators empty for jobs that need a whole one, at the price of two jobs
halving each other's speed for life beside an idle accelerator: that loss is certain, while the other only comes if
such a job does, and ends as soon as one of the small jobs does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.core.jobs import Resources
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare

# The problem of an accelerator that a job which goes elsewhere has not left yet: its memory is free once its exit is
# confirmed, and until then nobody may hold the accelerator to be empty.
_LEAVING = "a job that was sent elsewhere has not left it yet"

Grant = tuple[AcceleratorShare, ...]
"""Accelerators that a job holds, in the order of the node's; until they are shared out each with the fraction 1."""


@dataclass(slots=True)
class _Accelerator:
    """An accelerator while a node fills up."""

    view: Accelerator
    holders: int = 0
    promised_bytes: int = 0
    is_taken: bool = False  # by a job that was promised to be alone, whatever memory it was promised then

    @property
    def free_bytes(self) -> int:
        return max(self.view.memory_bytes - self.promised_bytes, 0)

    def has_room_for(self, wanted: Resources) -> bool:
        if self.view.problem or self.is_taken:
            return False
        if not wanted.accelerator_memory_bytes:
            return not self.holders
        return wanted.accelerator_memory_bytes <= self.free_bytes

    def promise(self, memory_bytes: int, wanted: Resources) -> None:
        self.holders += 1
        self.promised_bytes += memory_bytes
        self.is_taken = self.is_taken or not wanted.accelerator_memory_bytes


class NodeAccelerators:
    """The accelerators of a node while it fills up; local to one decision."""

    def __init__(self, node: NodeView, jobs: Iterable[JobView] = ()) -> None:
        self._accelerators = [_Accelerator(view) for view in node.accelerators]
        self._by_id = {accelerator.view.id: accelerator for accelerator in self._accelerators}
        self.uses = 0
        for job in jobs:
            self.keep(job)

    @property
    def crowd(self) -> float:
        """Jobs per accelerator once another one has come; a job on two of them counts twice."""
        return (self.uses + 1) / max(len(self._accelerators), 1)

    def keep(self, job: JobView) -> None:
        """A running job keeps what it holds."""
        for held in held_by(job):
            self._hold(held, job.resources)

    def has_room_for(self, wanted: Resources) -> bool:
        """Whether as many accelerators as it asks for have room for it."""
        return not self.lacking(wanted)

    def lacking(self, wanted: Resources) -> int:
        """How many more would need room for it."""
        having = sum(accelerator.has_room_for(wanted) for accelerator in self._accelerators)
        return max(wanted.accelerators - having, 0)

    def have_room_for(self, several: Iterable[Resources]) -> bool:
        """Whether there is room for jobs that come one after the other."""
        trial = copy.deepcopy(self)
        return all(trial.grant(wanted) is not None for wanted in several)

    def grant(self, wanted: Resources) -> Grant | None:
        """Choose and promise accelerators to a job that comes; None, and nothing is promised, without room."""
        fitting = [index for index, accelerator in enumerate(self._accelerators) if accelerator.has_room_for(wanted)]
        if len(fitting) < wanted.accelerators:
            return None
        fitting.sort(key=lambda index: (self._accelerators[index].holders, self._accelerators[index].free_bytes, index))
        chosen = sorted(fitting[: wanted.accelerators])
        views = [self._accelerators[index].view for index in chosen]
        grant = tuple(
            AcceleratorShare(view.id, 1.0, wanted.accelerator_memory_bytes or view.memory_bytes) for view in views
        )
        for share in grant:
            self._hold(share, wanted)
        return grant

    def _hold(self, share: AcceleratorShare, wanted: Resources) -> None:
        self.uses += 1
        if share.id in self._by_id:  # one that is gone is no longer promised by anybody
            self._by_id[share.id].promise(share.memory_bytes, wanted)


def held_by(job: JobView) -> Grant:
    """What a job that a node runs holds there; nothing for one that waits."""
    return () if job.movable or job.share is None else job.share.accelerators


def grants(node: NodeView, jobs: Sequence[JobView]) -> dict[str, Grant]:
    """What each job on a node holds of its accelerators, or shall hold; jobs without any are left out.

    Args:
        node: The node.
        jobs: Those that are there and those that shall be, by submission: the order in which placement fills a node.
            Jobs that come from another node choose last.
    """
    accelerators = NodeAccelerators(node)
    found: dict[str, Grant] = {}
    coming: list[JobView] = []
    migrating: list[JobView] = []
    for job in jobs:
        if not job.movable and job.node_id == node.id:
            accelerators.keep(job)
            if held := held_by(job):
                found[job.id] = tuple(replace(share, cap=None) for share in held)  # caps are decided anew
        elif job.resources.accelerators:
            (coming if job.movable else migrating).append(job)
    for job in (*coming, *migrating):
        grant = accelerators.grant(job.resources)
        if grant is not None:
            found[job.id] = grant
    return found


def can_take(node: NodeView, jobs: Sequence[JobView], job: JobView) -> bool:
    """Whether a node has accelerators left for one more job beside those that are there or shall be."""
    if not job.resources.accelerators:
        return True
    return job.id in grants(node, [*jobs, replace(job, movable=False)])


def without_leaving(node: NodeView, memory_bytes: int, held: Iterable[str]) -> NodeView:
    """The node without what jobs that leave it still hold: free once their exit is confirmed.

    Args:
        node: The node.
        memory_bytes: Memory that they hold.
        held: Ids of the accelerators that they hold; nobody new is put on these meanwhile.
    """
    busy = frozenset(held)
    if not memory_bytes and not busy:
        return node
    accelerators = tuple(
        replace(view, problem=view.problem or _LEAVING) if view.id in busy else view for view in node.accelerators
    )
    return replace(node, memory_bytes=max(node.memory_bytes - memory_bytes, 0), accelerators=accelerators)
