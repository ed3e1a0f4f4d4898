"""Where a waiting job goes: the placement that policies share.

Jobs that a node runs stay where they are. The others are taken in the order of submission, and each goes to the node
that then has the fewest jobs per core, or that the policy prefers. Memory is never promised twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot

# Orders the nodes that could take a job, the smallest first, by the job, the node, and the jobs that the node then has.
Preference = Callable[[JobView, NodeView, Sequence[JobView]], tuple[float | str, ...]]

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Placement:
    """Where jobs go.

    Attributes:
        node_of: The node of each job that runs or shall run, by job id.
        waiting: Why a job that could be placed is not, by job id, in words for its tenant. Jobs of an offline node are
            in neither: they wait for their node, not for a decision.
    """

    node_of: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


def submission_order(job: JobView) -> tuple[float, str]:
    """Key that sorts jobs by submission; the id settles ties."""
    return (job.submitted_at, job.id)


def fewest_jobs_per_core(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
    """The node it is meant for already, then jobs per core once it is there, then the id."""
    return (node.id != job.node_id, (len(jobs) + 1) / node.cpu_cores, node.id)


def place(snapshot: Snapshot, preference: Preference = fewest_jobs_per_core) -> Placement:
    """Give every job that can run a node.

    Args:
        snapshot: Jobs and nodes.
        preference: Where a waiting job goes among the nodes that have room for it.
    """
    rooms = {node.id: _Room(node) for node in sorted(snapshot.nodes, key=lambda node: node.id)}
    placement = Placement()
    jobs = sorted(snapshot.jobs, key=submission_order)
    for job in jobs:
        if not job.movable and job.node_id in rooms:
            rooms[job.node_id].take(job)
            placement.node_of[job.id] = job.node_id
    for job in jobs:
        if not job.movable:
            continue
        fitting = [room for room in rooms.values() if room.can_ever_hold(job) and room.has_memory_for(job)]
        if fitting:
            room = min(fitting, key=lambda room: preference(job, room.node, room.jobs))
            room.take(job)
            placement.node_of[job.id] = room.node.id
        else:
            placement.waiting[job.id] = _why_waiting(job, tuple(rooms.values()))
    return placement


def can_hold(node: NodeView, job: JobView) -> bool:
    """Whether an empty ``node`` could run ``job``."""
    return _has_runtime(node, job) and _has_image(node, job) and _has_cores(node, job) and _is_large_enough(node, job)


def jobs_by_node(snapshot: Snapshot, placement: Placement) -> dict[str, list[JobView]]:
    """The placed jobs of each node, nodes by id and jobs by submission; nodes without jobs are left out."""
    groups: dict[str, list[JobView]] = {}
    for job in sorted(snapshot.jobs, key=submission_order):
        if job.id in placement.node_of:
            groups.setdefault(placement.node_of[job.id], []).append(job)
    return dict(sorted(groups.items()))


@dataclass(slots=True)
class _Room:
    """A node while it fills up; local to one call of :func:`place`."""

    node: NodeView
    jobs: list[JobView] = field(default_factory=list)
    memory_bytes: int = 0

    def take(self, job: JobView) -> None:
        self.jobs.append(job)
        self.memory_bytes += job.resources.memory_bytes

    def can_ever_hold(self, job: JobView) -> bool:
        return can_hold(self.node, job)

    @property
    def free_bytes(self) -> int:
        return max(self.node.memory_bytes - self.memory_bytes, 0)

    def has_memory_for(self, job: JobView) -> bool:
        return job.resources.memory_bytes <= self.free_bytes


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


def _has_cores(node: NodeView, job: JobView) -> bool:
    return node.cpu_cores > 0 and job.resources.cpu_cores <= node.cpu_cores


def _is_large_enough(node: NodeView, job: JobView) -> bool:
    return job.resources.memory_bytes <= node.memory_bytes


def _why_waiting(job: JobView, rooms: Sequence[_Room]) -> str:
    """The first need that no node meets, in words."""
    if not rooms:
        return "waits for a node: none is online"
    nodes = [room.node for room in rooms]
    needs: tuple[tuple[Callable[[NodeView, JobView], bool], Callable[[Iterable[NodeView]], str]], ...] = (
        (_has_runtime, lambda _: f"waits for a node that can run jobs with {job.runtime or 'any runtime'}"),
        (_has_image, lambda _: f"waits for a node that has the container image {job.image}"),
        (_has_cores, lambda left: f"asks for {job.resources.cpu_cores:g} cores; {_largest_cores(left)}"),
        (_is_large_enough, lambda left: f"asks for {_gib(job.resources.memory_bytes)} of memory; {_largest(left)}"),
    )
    for meets, sentence in needs:
        remaining = [node for node in nodes if meets(node, job)]
        if not remaining:
            return sentence(nodes)
        nodes = remaining
    free = max(room.free_bytes for room in rooms if room.node in nodes)
    return (
        f"waits for memory: it asks for {_gib(job.resources.memory_bytes)}, "
        f"and at most {_gib(free)} is free on a node that can run it; it starts when other jobs end"
    )


def _largest_cores(nodes: Iterable[NodeView]) -> str:
    return f"the largest node that could run it has {max(node.cpu_cores for node in nodes):g}"


def _largest(nodes: Iterable[NodeView]) -> str:
    return f"the largest node that could run it has {_gib(max(node.memory_bytes for node in nodes))}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.2f} GiB"
