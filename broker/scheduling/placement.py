"""Where a waiting job goes: the placement that policies share.

Jobs that a node runs stay where they are. The others are taken in the order of submission, or
in that of the policy, and each goes to the node
that then has the fewest jobs per core (one that uses accelerators: the fewest jobs per accelerator), or that the policy
prefers. Memory is never promised twice, that of accelerators neither (:mod:`.accelerators`).

Small jobs that keep coming do not keep a large one waiting for ever: for the first in line of each kind that finds no
room, room is kept on the node that can have it soonest (EASY backfill; Lifka, 1995). Nobody foretells when jobs end, so
whoever comes later begins there only where it leaves that room beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace, nsmallest
from operator import attrgetter
from typing import Any

from tiercel.broker.scheduling.classes import by_class
from tiercel.broker.scheduling.explain import why_waiting
from tiercel.broker.scheduling.feasible import Room, could_hold_with_memory
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.own_priority import in_own_order
from tiercel.broker.scheduling.rank import by_submission

# Orders the nodes that could take a job, the smallest first, by the job, the node, and the jobs that the node then has.
Preference = Callable[[JobView, NodeView, Sequence[JobView]], tuple[float | str, ...]]

# A job with a preference looks at so many nodes that have room, those with the fewest jobs per core: as good as all of
# them, where there are many.
_LOOKED_AT = 32


@dataclass(frozen=True, slots=True)
class Placement:
    """Where jobs go."""

    node_of: dict[str, str] = field(default_factory=dict)  # the node of each job that runs or shall run, by job id
    # Why a job that could be placed is not, by job id, in words for its tenant. Jobs of an offline node are in neither:
    # they wait for their node, not for a decision.
    waiting: dict[str, str] = field(default_factory=dict)
    # By node, the job that waits for room there: nothing may come there that leaves it none.
    kept: dict[str, JobView] = field(default_factory=dict)
    # The jobs it was made for, as the snapshot lists them.
    jobs: tuple[JobView, ...] = field(default=(), repr=False, compare=False)
    # The same in the order in which nodes were filled, so that they are sorted only once.
    in_order: Sequence[JobView] = field(default=(), repr=False, compare=False)


def fewest_jobs_per_core(job: JobView, node: NodeView, jobs: Sequence[JobView]) -> tuple[float | str, ...]:
    """The node it is meant for already, then jobs per accelerator if it uses any, then jobs per core, then the id."""
    crowd = (len(jobs) + 1) / node.cpu_cores
    if not job.resources.accelerators:
        return (node.id != job.node_id, crowd, node.id)
    uses = 1 + sum(other.resources.accelerators for other in jobs)
    return (node.id != job.node_id, uses / max(len(node.accelerators), 1), crowd, node.id)


# Puts the jobs that wait for a node, which come by submission, in the order in which they are looked at.
Line = Callable[[Sequence[JobView]], Sequence[JobView]]


def place(snapshot: Snapshot, preference: Preference = fewest_jobs_per_core, line: Line | None = None) -> Placement:
    """Give every job that can run a node.

    Takes about as long as sorting the jobs does, however many nodes there are; with a preference of one's own, each
    waiting job looks for the least crowded nodes first, and compares these.

    Args:
        snapshot: Jobs and nodes.
        preference: Where a waiting job goes among the nodes that have room for it.
        line: Who is looked at first; without it who was submitted first.
    """
    rooms = {node.id: Room(node) for node in sorted(snapshot.nodes, key=attrgetter("id"))}
    placement = Placement(jobs=snapshot.jobs, in_order=by_submission(snapshot.jobs))
    movable: list[JobView] = []
    for job in placement.in_order:
        if job.movable:
            movable.append(job)
        elif (room := rooms.get(job.node_id)) is not None:
            room.jobs.append(job)
            room.memory_bytes += job.resources.memory_bytes
            placement.node_of[job.id] = job.node_id
    if movable and line is not None:
        movable = list(line(movable))
        there = [job for job in placement.in_order if not job.movable]
        placement = replace(placement, in_order=(*there, *movable))
    if movable:
        _place_movable(by_class(in_own_order(movable)), rooms, placement, preference)
    return placement


def _place_movable(
    jobs: Sequence[JobView], rooms: Mapping[str, Room], placement: Placement, preference: Preference
) -> None:
    least = min(job.resources.memory_bytes for job in jobs)
    possible: dict[tuple[Hashable, ...], _PossibleNodes] = {}
    for job in jobs:
        wanted = job.resources
        kind = (
            job.runtime,
            job.image,
            wanted.cpu_cores,
            wanted.accelerators,
            wanted.accelerator_memory_bytes,
            job.home,
            job.data,
            job.node_labels,
        )
        nodes = possible.get(kind)
        if nodes is None:
            nodes = possible[kind] = _PossibleNodes(job, rooms, least)
        room = nodes.find(job) if preference is fewest_jobs_per_core else nodes.find_preferred(job, preference)
        if room is None:
            if (kept := nodes.keep_for(job)) is not None:
                placement.kept[kept.node.id] = job
            placement.waiting[job.id] = nodes.why_waiting(job, placed=len(placement.node_of))
        else:
            room.add(job)
            placement.node_of[job.id] = room.node.id


def jobs_by_node(snapshot: Snapshot, placement: Placement) -> dict[str, list[JobView]]:
    """The placed jobs of each node, nodes by id and jobs as they filled it; nodes without jobs are left out."""
    groups: dict[str, list[JobView]] = {}
    node_of = placement.node_of
    known = placement.jobs is snapshot.jobs
    for job in placement.in_order if known else by_submission(snapshot.jobs):
        node_id = node_of.get(job.id)
        if node_id is not None:
            groups.setdefault(node_id, []).append(job)
    return dict(sorted(groups.items()))


class _PossibleNodes:
    """The nodes that could run jobs of one kind (runtime, image, data, cores, ...), the least crowded first."""

    # Within a call of place() crowds only grow and free memory only shrinks. So an entry of the heap that is out of
    # date is put back in its place when it comes up, a node without memory for the smallest job (the least that any job
    # to be placed asks for) or without accelerators for the kind is dropped, and where a job found no node, none that
    # asks for as much will.

    def __init__(self, job: JobView, rooms: Mapping[str, Room], least: int) -> None:
        self._nodes = tuple(room.node for room in rooms.values())
        self._least = least
        self._too_much = math.inf
        self._rooms = {node_id: room for node_id, room in rooms.items() if could_hold_with_memory(room.node, job)}
        self._crowd_of: Callable[[Room], Any] = attrgetter(
            "accelerator_crowd" if job.resources.accelerators else "crowd"
        )
        self._heap = [(self._crowd_of(room), node_id) for node_id, room in self._rooms.items()]
        heapify(self._heap)
        self._sentences: dict[tuple[int, int], str] = {}
        self._keeps = False

    def find(self, job: JobView) -> Room | None:
        """The node it is meant for already if that has room, else the least crowded one that has."""
        if job.resources.memory_bytes >= self._too_much:
            return None
        meant = self._rooms.get(job.node_id)
        if meant is not None and meant.has_memory_for(job) and meant.has_accelerators_for(job):
            return meant
        passed_over: list[tuple[Any, str]] = []
        found = None
        while self._heap and found is None:
            crowd, node_id = self._heap[0]
            room = self._rooms[node_id]
            if crowd != (now := self._crowd_of(room)):
                heapreplace(self._heap, (now, node_id))
            elif not room.has_accelerators_for(job):
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

    def find_preferred(self, job: JobView, preference: Preference) -> Room | None:
        """Of the nodes that have room (of many, the least crowded and the one it is meant for) the preferred one."""
        needed = job.resources.memory_bytes
        fitting = [
            room
            for room in self._rooms.values()
            if not needed or (needed <= room.node.memory_bytes - room.memory_bytes and room.has_memory_for(job))
        ]
        if job.resources.accelerators:
            fitting = [room for room in fitting if room.has_accelerators_for(job)]
        if len(fitting) > _LOOKED_AT:
            meant = self._rooms.get(job.node_id)
            fitting = nsmallest(_LOOKED_AT, fitting, key=self._crowd_of)  # the first by id of those as crowded
            has_room = meant is not None and meant.has_memory_for(job) and meant.has_accelerators_for(job)
            if meant is not None and has_room and meant not in fitting:
                fitting.append(meant)
        return min(fitting, key=lambda room: preference(job, room.node, room.jobs), default=None)

    def keep_for(self, job: JobView) -> Room | None:
        """Keep room for the first job that found none, on the node that can have it soonest; None for later ones."""
        if self._keeps:
            return None
        possible = [
            room
            for room in self._rooms.values()
            if room.kept_for is None and job.resources.memory_bytes <= room.node.memory_bytes
        ]
        found = min(possible, key=lambda room: (room.shortfall(job), room.node.id), default=None)
        if found is not None:
            found.keep_for(job)
            self._keeps = True
        return found

    def why_waiting(self, job: JobView, placed: int) -> str:
        """Why it has no node, in words; the same for jobs that ask for as much, until another one is placed."""
        key = (job.resources.memory_bytes, placed)
        if key not in self._sentences:
            self._sentences[key] = why_waiting(job, self._nodes, tuple(self._rooms.values()))
        return self._sentences[key]
