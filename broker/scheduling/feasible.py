"""Step "feasible": which nodes could run a job, and which of these have room for it beside the jobs that they have.

All that a job may need of a node is listed once, in the order in which people are told of it: placement, migration,
admission and the check of plans go by that list.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.accelerators import NodeAccelerators, can_take
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.core.nodes import Drain


class Need(enum.Enum):
    """What a job needs of a node that runs it."""

    HOME = "home"
    RUNTIME = "runtime"
    IMAGE = "image"
    DATA = "data"
    LABELS = "labels"
    CPU_CORES = "cpu_cores"
    MEMORY = "memory"
    ACCELERATORS = "accelerators"
    OPEN = "open"


def can_hold(node: NodeView, job: JobView) -> bool:
    """Whether an empty ``node`` could run ``job``."""
    return could_hold_with_memory(node, job) and _is_large_enough(node, job)


def could_hold_with_memory(node: NodeView, job: JobView) -> bool:
    """Whether an empty ``node`` could run ``job`` if that asked for no memory."""
    for meets in _BUT_FOR_MEMORY:  # noqa: SIM110 - a generator would take twice as long, for each kind of job and node
        if not meets(node, job):
            return False
    return True


def first_unmet(job: JobView, nodes: Iterable[NodeView]) -> tuple[Need | None, list[NodeView]]:
    """The first need that none of the nodes meets which meet all before it, and these nodes.

    Where every need is met by a node that meets all before it: None, and the nodes that could run the job if they were
    empty. Nothing is found about no nodes at all.
    """
    left = list(nodes)
    for need, meets in _MEETS.items():
        able = [node for node in left if meets(node, job)]
        if left and not able:
            return need, left
        left = able
    return None, left


@dataclass(slots=True)
class Room:
    """What is left of a node beside the jobs that it has; local to one decision."""

    node: NodeView  # the node
    jobs: list[JobView] = field(default_factory=list)  # those that are there or shall be
    memory_bytes: int = 0  # memory that they hold
    kept_for: JobView | None = None  # a job that waits for room here, which others leave beside them
    # The node as it is once that job can begin: those are gone for which it waits.
    _then: Room | None = None
    _accelerators: NodeAccelerators | None = None

    @classmethod
    def beside(cls, node: NodeView, jobs: Sequence[JobView], kept_for: JobView | None = None) -> Room:
        """The room beside these jobs, and beside one that waits for it."""
        room = cls(node, list(jobs), sum(job.resources.memory_bytes for job in jobs))
        if kept_for is not None:
            room.keep_for(kept_for)
        return room

    def keep_for(self, job: JobView) -> None:
        """From now on whoever comes leaves room for a job that waits.

        It waits for jobs that stop now, if that is enough, else for all that were here before it came. Whoever began
        later is in its way no longer than that.
        """
        self.kept_for, self._then = job, self._without_stopping()
        if not self._then.has_room_for(job):
            self._then = self._without_earlier(job)

    def shortfall(self, job: JobView) -> tuple[int, int, int, int]:
        """How far a job is from room here, smaller is sooner: accelerators and bytes that those hold who began later.

        Then the same that anybody holds who does not stop now.
        """
        return (*self._without_earlier(job)._lacks(job), *self._without_stopping()._lacks(job))  # noqa: SLF001

    def _without_stopping(self) -> Room:
        return Room.beside(self.node, [each for each in self.jobs if not each.stopping])

    def _without_earlier(self, job: JobView) -> Room:
        later = (each for each in self.jobs if each.started_at is None or each.started_at > job.submitted_at)
        return Room.beside(self.node, [each for each in later if not each.stopping])

    def _lacks(self, job: JobView) -> tuple[int, int]:
        accelerators = self.accelerators.lacking(job.resources) if job.resources.accelerators else 0
        return accelerators, max(job.resources.memory_bytes - self.free_bytes, 0)

    @property
    def accelerators(self) -> NodeAccelerators:
        """Its accelerators; looked at only once a job asks for any, from then on they fill up with the node."""
        if self._accelerators is None:
            self._accelerators = NodeAccelerators(self.node, self.jobs)
        return self._accelerators

    @property
    def free_bytes(self) -> int:
        """Memory that nobody holds."""
        return max(self.node.memory_bytes - self.memory_bytes, 0)

    def has_room_for(self, job: JobView) -> bool:
        """Whether there are memory and accelerators for one more job."""
        return self.has_memory_for(job) and self.has_accelerators_for(job)

    def has_memory_for(self, job: JobView) -> bool:
        """Whether there is memory for one more job, beside the one that it is kept for."""
        needed = job.resources.memory_bytes
        if needed > self.free_bytes or not needed or self._then is None or self.kept_for is None:
            return needed <= self.free_bytes
        return needed + self.kept_for.resources.memory_bytes <= self._then.free_bytes

    def has_accelerators_for(self, job: JobView) -> bool:
        """Whether there are accelerators with room for one more job, beside the one that they are kept for."""
        if not job.resources.accelerators:
            return True
        if self._then is None or self.kept_for is None or not self.kept_for.resources.accelerators:
            return self.accelerators.has_room_for(job.resources)
        both = job.resources, self.kept_for.resources
        return self.accelerators.has_room_for(job.resources) and self._then.accelerators.have_room_for(both)

    def can_take(self, job: JobView) -> bool:
        """Whether a job that runs elsewhere may come here: behind all that are here or shall be."""
        return (
            self.memory_bytes + job.resources.memory_bytes <= self.node.memory_bytes
            and can_hold(self.node, job)
            and (self.kept_for is None or self.has_room_for(job))
            and can_take(self.node, self.jobs, job)
        )

    def add(self, job: JobView) -> None:
        """A job is placed here."""
        self.jobs.append(job)
        self.memory_bytes += job.resources.memory_bytes
        if job.resources.accelerators:
            self.accelerators.grant(job.resources)
        if self._then is not None:
            self._then.add(job)

    @property
    def crowd(self) -> float:
        """Jobs per core once another one has come."""
        return (len(self.jobs) + 1) / self.node.cpu_cores

    @property
    def accelerator_crowd(self) -> tuple[float, float]:
        """Jobs per accelerator, and among equals jobs per core, once another one that uses them has come."""
        return (self.accelerators.crowd, self.crowd)


def _is_home(node: NodeView, job: JobView) -> bool:
    """Whether the job may be there at all: the variants of an endpoint are on one node."""
    return job.home in {"", node.id}


def _has_runtime(node: NodeView, job: JobView) -> bool:
    return bool(node.runtimes) and (not job.runtime or job.runtime in node.runtimes)


def _has_image(node: NodeView, job: JobView) -> bool:
    """Whether the image is at hand; a node that lists no images is trusted to get any."""
    runtime = job.runtime or (node.runtimes[0] if node.runtimes else "")
    if runtime != "docker" or not job.image or not node.images:
        return True
    return _with_tag(job.image) in {_with_tag(image) for image in node.images}


def _with_tag(image: str) -> str:
    """The image's name as engines complete it: ``python`` is ``python:latest``."""
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"


def _has_data(node: NodeView, job: JobView) -> bool:
    return job.data <= node.data


def _has_labels(node: NodeView, job: JobView) -> bool:
    return job.node_labels <= node.labels


def _has_cores(node: NodeView, job: JobView) -> bool:
    return node.cpu_cores > 0 and job.resources.cpu_cores <= node.cpu_cores


def _is_large_enough(node: NodeView, job: JobView) -> bool:
    return job.resources.memory_bytes <= node.memory_bytes


def _has_accelerators(node: NodeView, job: JobView) -> bool:
    """Whether it has as many in good order, and with as much memory, as the job asks for."""
    wanted, least = job.resources.accelerators, job.resources.accelerator_memory_bytes
    return not wanted or sum(not each.problem and least <= each.memory_bytes for each in node.accelerators) >= wanted


def _is_open(node: NodeView, job: JobView) -> bool:
    """Whether anything new may start there."""
    del job
    return node.drain is Drain.NO


_MEETS: Mapping[Need, Callable[[NodeView, JobView], bool]] = types.MappingProxyType(
    {
        Need.HOME: _is_home,
        Need.RUNTIME: _has_runtime,
        Need.IMAGE: _has_image,
        Need.DATA: _has_data,
        Need.LABELS: _has_labels,
        Need.CPU_CORES: _has_cores,
        Need.MEMORY: _is_large_enough,
        Need.ACCELERATORS: _has_accelerators,
        Need.OPEN: _is_open,
    }
)
_BUT_FOR_MEMORY = tuple(meets for need, meets in _MEETS.items() if need is not Need.MEMORY)
