"""Where a waiting job goes: the placement that policies share.

Jobs that a node runs stay where they are. The others are taken in the order of submission, and each goes to the node
that then has the fewest jobs per core (one that uses accelerators: the fewest jobs per accelerator), or that the policy
prefers. Memory is never promised twice, that of accelerators neither (:mod:`.devices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from operator import attrgetter
from typing import Any

from tiercel.broker.scheduling.devices import (
    Devices,
    accelerators_are_large_enough,
    lacks_accelerators,
    waits_for_accelerators,
)
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot

# Orders the nodes that could take a job, the smallest first, by the job, the node, and the jobs that the node then has.
Preference = Callable[[JobView, NodeView, Sequence[JobView]], tuple[float | str, ...]]

# A job with a preference looks at so many nodes that have room, those with the fewest jobs per core: as good as all of
# them, where there are many.
_LOOKED_AT = 32
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Placement:
    """Where jobs go.

    Attributes:
        node_of: The node of each job that runs or shall run, by job id.
        waiting: Why a job that could be placed is not, by job id, in words for its tenant. Jobs of an offline node are
            in neither: they wait for their node, not for a decision.
        jobs: The jobs it was made for, as the snapshot lists them.
        in_order: The same by submission, so that they are sorted only once.
    """

    node_of: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    jobs: tuple[JobView, ...] = field(default=(), repr=False, compare=False)
    in_order: Sequence[JobView] = field(default=(), repr=False, compare=False)


def submission_order(job: JobView) -> tuple[float, str]:
    """Key that sorts jobs by submission; the id settles ties."""
    return (job.submitted_at, job.id)


def by_submission(jobs: Iterable[JobView]) -> list[JobView]:
    """The jobs sorted by :func:`submission_order`, in a fraction of the time that pairs take to compare."""
    return sorted(sorted(jobs, key=attrgetter("id")), key=attrgetter("submitted_at"))


def fewest_jobs_per_core(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
    """The node it is meant for already, then jobs per accelerator if it uses any, then jobs per core, then the id."""
    crowd = (len(jobs) + 1) / node.cpu_cores
    if not job.resources.accelerators:
        return (node.id != job.node_id, crowd, node.id)
    uses = 1 + sum(other.resources.accelerators for other in jobs)
    return (node.id != job.node_id, uses / max(len(node.accelerators), 1), crowd, node.id)


def place(snapshot: Snapshot, preference: Preference = fewest_jobs_per_core) -> Placement:
    """Give every job that can run a node.

    Takes about as long as sorting the jobs does, however many nodes there are; with a preference of one's own, each
    waiting job looks for the least crowded nodes first, and compares these.

    Args:
        snapshot: Jobs and nodes.
        preference: Where a waiting job goes among the nodes that have room for it.
    """
    rooms = {node.id: _Room(node) for node in sorted(snapshot.nodes, key=attrgetter("id"))}
    placement = Placement(jobs=snapshot.jobs, in_order=by_submission(snapshot.jobs))
    movable: list[JobView] = []
    for job in placement.in_order:
        if job.movable:
            movable.append(job)
        elif (room := rooms.get(job.node_id)) is not None:
            room.jobs.append(job)
            room.memory_bytes += job.resources.memory_bytes
            placement.node_of[job.id] = job.node_id
    if movable:
        _place_movable(movable, rooms, placement, preference)
    return placement


def _place_movable(
    jobs: Sequence[JobView], rooms: Mapping[str, _Room], placement: Placement, preference: Preference
) -> None:
    least = min(job.resources.memory_bytes for job in jobs)
    queues: dict[tuple[str, str, float, int, int, str], _Queue] = {}
    for job in jobs:
        wanted = job.resources
        kind = (
            job.runtime,
            job.image,
            wanted.cpu_cores,
            wanted.accelerators,
            wanted.accelerator_memory_bytes,
            job.home,
        )
        queue = queues.get(kind)
        if queue is None:
            queue = queues[kind] = _Queue(job, rooms, least)
        room = queue.find(job) if preference is fewest_jobs_per_core else queue.find_preferred(job, preference)
        if room is None:
            placement.waiting[job.id] = queue.why_waiting(job, placed=len(placement.node_of))
        else:
            room.jobs.append(job)
            room.memory_bytes += wanted.memory_bytes
            if wanted.accelerators:
                room.devices.grant(wanted)
            placement.node_of[job.id] = room.node.id


def can_hold(node: NodeView, job: JobView) -> bool:
    """Whether an empty ``node`` could run ``job``."""
    return (
        _is_home(node, job)
        and _has_runtime(node, job)
        and _has_image(node, job)
        and _has_cores(node, job)
        and _is_large_enough(node, job)
        and accelerators_are_large_enough(node, job)
    )


def jobs_by_node(snapshot: Snapshot, placement: Placement) -> dict[str, list[JobView]]:
    """The placed jobs of each node, nodes by id and jobs by submission; nodes without jobs are left out."""
    groups: dict[str, list[JobView]] = {}
    node_of = placement.node_of
    known = placement.jobs is snapshot.jobs
    for job in placement.in_order if known else by_submission(snapshot.jobs):
        node_id = node_of.get(job.id)
        if node_id is not None:
            groups.setdefault(node_id, []).append(job)
    return dict(sorted(groups.items()))


@dataclass(slots=True)
class _Room:
    """A node while it fills up; local to one call of :func:`place`."""

    node: NodeView
    jobs: list[JobView] = field(default_factory=list)
    memory_bytes: int = 0
    _devices: Devices | None = None

    @property
    def devices(self) -> Devices:
        """Its accelerators; looked at only once a job asks for any, from then on they fill up with the node."""
        if self._devices is None:
            self._devices = Devices(self.node, self.jobs)
        return self._devices

    @property
    def free_bytes(self) -> int:
        return max(self.node.memory_bytes - self.memory_bytes, 0)

    def has_memory_for(self, job: JobView) -> bool:
        return job.resources.memory_bytes <= self.free_bytes

    def has_devices_for(self, job: JobView) -> bool:
        return not job.resources.accelerators or self.devices.has_room_for(job.resources)

    @property
    def crowd(self) -> float:
        """Jobs per core once another one has come."""
        return (len(self.jobs) + 1) / self.node.cpu_cores

    @property
    def device_crowd(self) -> tuple[float, float]:
        """Jobs per accelerator, and among equals jobs per core, once another one that uses them has come."""
        return (self.devices.crowd, self.crowd)


class _Queue:
    """The nodes that could run jobs of one kind (runtime, image, cores, accelerators), the least crowded first.

    Within a call of :func:`place` crowds only grow and free memory only shrinks. So an entry of the heap that is out of
    date is put back in its place when it comes up, a node without memory for the smallest job or without accelerators
    for the kind is dropped, and where a job found no node, none that asks for as much will.

    Args:
        job: One of the kind.
        rooms: All nodes.
        least: The least memory that any job to be placed asks for, bytes.
    """

    def __init__(self, job: JobView, rooms: Mapping[str, _Room], least: int) -> None:
        self._nodes = tuple(room.node for room in rooms.values())
        self._least = least
        self._too_much = math.inf
        self._rooms = {
            node_id: room
            for node_id, room in rooms.items()
            if _is_home(room.node, job)
            and _has_runtime(room.node, job)
            and _has_image(room.node, job)
            and _has_cores(room.node, job)
            and accelerators_are_large_enough(room.node, job)
        }
        self._crowd_of: Callable[[_Room], Any] = attrgetter("device_crowd" if job.resources.accelerators else "crowd")
        self._heap = [(self._crowd_of(room), node_id) for node_id, room in self._rooms.items()]
        heapify(self._heap)
        self._sentences: dict[tuple[int, int], str] = {}

    def find(self, job: JobView) -> _Room | None:
        """The node it is meant for already if that has room, else the least crowded one that has."""
        if job.resources.memory_bytes >= self._too_much:
            return None
        meant = self._rooms.get(job.node_id)
        if meant is not None and meant.has_memory_for(job) and meant.has_devices_for(job):
            return meant
        passed_over: list[tuple[Any, str]] = []
        found = None
        while self._heap and found is None:
            crowd, node_id = self._heap[0]
            room = self._rooms[node_id]
            if crowd != (now := self._crowd_of(room)):
                heapreplace(self._heap, (now, node_id))
            elif not room.has_devices_for(job):
                heappop(self._heap)
            elif room.has_memory_for(job):
                found = room
            else:
                heappop(self._heap)
                if room.free_bytes >= self._least:
                    passed_over.append((crowd, node_id))
        for entry in passed_over:
            heappush(self._heap, entry)
        if found is None:
            self._too_much = job.resources.memory_bytes
        return found

    def find_preferred(self, job: JobView, preference: Preference) -> _Room | None:
        """Of the nodes that have room (of many, the least crowded and the one it is meant for) the preferred one."""
        needed = job.resources.memory_bytes
        fitting = [
            room for room in self._rooms.values() if not needed or needed <= room.node.memory_bytes - room.memory_bytes
        ]
        if job.resources.accelerators:
            fitting = [room for room in fitting if room.has_devices_for(job)]
        if len(fitting) > _LOOKED_AT:
            meant = self._rooms.get(job.node_id)
            fitting = nsmallest(_LOOKED_AT, fitting, key=self._crowd_of)  # the first by id of those as crowded
            has_room = meant is not None and meant.has_memory_for(job) and meant.has_devices_for(job)
            if meant is not None and has_room and meant not in fitting:
                fitting.append(meant)
        return min(fitting, key=lambda room: preference(job, room.node, room.jobs), default=None)

    def why_waiting(self, job: JobView, placed: int) -> str:
        """Why it has no node, in words; the same for jobs that ask for as much, until another one is placed."""
        key = (job.resources.memory_bytes, placed)
        if key not in self._sentences:
            self._sentences[key] = _why_waiting(job, self._nodes, tuple(self._rooms.values()))
        return self._sentences[key]


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


def _has_cores(node: NodeView, job: JobView) -> bool:
    return node.cpu_cores > 0 and job.resources.cpu_cores <= node.cpu_cores


def _is_large_enough(node: NodeView, job: JobView) -> bool:
    return job.resources.memory_bytes <= node.memory_bytes


def _why_waiting(job: JobView, nodes: Sequence[NodeView], rooms: Sequence[_Room]) -> str:
    """The first need that no node meets, in words; ``rooms`` are those that meet all but the need for memory."""
    if not nodes:
        return "waits for a node: none is online"
    needs: tuple[tuple[Callable[[NodeView, JobView], bool], Callable[[Iterable[NodeView]], str]], ...] = (
        (_is_home, lambda _: f"waits for node {job.home}, where the variants of endpoint {job.endpoint} are"),
        (_has_runtime, lambda _: f"waits for a node that can run jobs with {job.runtime or 'any runtime'}"),
        (_has_image, lambda _: f"waits for a node that has the container image {job.image}"),
        (_has_cores, lambda left: f"asks for {job.resources.cpu_cores:g} cores; {_largest_cores(left)}"),
        (_is_large_enough, lambda left: f"asks for {_gib(job.resources.memory_bytes)} of memory; {_largest(left)}"),
        (accelerators_are_large_enough, lambda left: lacks_accelerators(job, left)),
    )
    for meets, sentence in needs:
        remaining = [node for node in nodes if meets(node, job)]
        if not remaining:
            return sentence(nodes)
        nodes = remaining
    fitting = [room for room in rooms if _is_large_enough(room.node, job)]
    if any(room.has_memory_for(job) for room in fitting):
        return waits_for_accelerators(job)
    free = max(room.free_bytes for room in fitting)
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
