"""The cluster at a glance: what there is, what waits, and what is wrong, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiercel.core.authority import AuthorityState
from tiercel.core.durations import in_words
from tiercel.core.figures import percent
from tiercel.core.jsonable import Json, Jsonable, json_of
from tiercel.core.nodes import Drain

LEAST_FREE_PART = 0.05
"""A node's disk with less than this part free is something to see to."""

CLOCK_SECONDS = 60.0
"""A clock that differs from the broker's by this much is something to see to."""


@dataclass(frozen=True, slots=True)
class NodeStatus(Jsonable):
    """A node at a glance."""

    id: str  # its name
    online: bool  # whether it answers
    drain: Drain = Drain.NO  # whether it is drained
    version: str = ""  # the version of Tiercel that its agent is of; empty where it does not say
    jobs: int = 0  # jobs that are there, of all tenants
    cpu_cores: float = 0.0  # cores that jobs may use
    cpu_cores_asked: float = 0.0  # cores that the jobs there ask for together; it may be more than there are
    memory_bytes: int = 0  # memory that jobs may use
    memory_reserved_bytes: int = 0  # what the jobs there have reserved of it
    accelerators: int = 0  # how many it has
    accelerators_held: int = 0  # how many of them a job holds
    accelerator_problems: tuple[str, ...] = ()  # what is wrong with which accelerator, in plain words
    disk_free_bytes: int = 0  # what its disk has left; 0 with ``disk_total_bytes`` while nobody knows
    disk_total_bytes: int = 0  # what its disk has in all
    clock_ahead_seconds: float = 0.0  # by how much its clock is ahead of the broker's; 0 for next to nothing


@dataclass(frozen=True, slots=True)
class EndpointStatus(Jsonable):
    """An endpoint at a glance."""

    name: str  # the endpoint
    tenant: str  # its owner
    live_version: int = 0  # the version that shall answer; 0 for none yet
    nodes: tuple[str, ...] = ()  # where it shall answer
    answering: tuple[str, ...] = ()  # on which of these nodes a version of it answers
    problems: tuple[str, ...] = ()  # why another one answers there, or none, in plain words


@dataclass(frozen=True, slots=True)
class WaitingJob(Jsonable):
    """A job that waits."""

    id: str  # the job
    tenant: str  # its owner
    reason: str  # what for, in plain words


@dataclass(frozen=True, slots=True)
class Problem(Jsonable):
    """Something to see to."""

    about: str  # what it is about: a node, an endpoint, or the cluster
    what: str  # what is wrong
    action: str  # what to do


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster at a glance."""

    version: str  # the version of Tiercel that the broker is of
    tenant: str = ""  # whose jobs and endpoints it tells of; empty for those of all tenants
    nodes: tuple[NodeStatus, ...] = ()  # all nodes, by name
    jobs: Mapping[str, int] = field(default_factory=dict)  # how many jobs that are not over are in which state
    waiting: tuple[WaitingJob, ...] = ()  # some of those that wait, the oldest first
    endpoints: tuple[EndpointStatus, ...] = ()  # by name
    # How far it is that another authority takes the place of the broker's; None while none does.
    rotation: AuthorityState | None = None
    # Why copies of checkpoints are not in the artefact store, in plain words, and of how many jobs.
    store_problems: Mapping[str, int] = field(default_factory=dict)

    def problems(self) -> tuple[Problem, ...]:
        """What there is to see to; empty when all is well."""
        found = [problem for node in self.nodes for problem in _node_problems(node, self.version)]
        offline = {node.id for node in self.nodes if not node.online}
        found += [problem for endpoint in self.endpoints for problem in _endpoint_problems(endpoint, offline)]
        if not self.nodes:
            found.append(Problem("cluster", "there is no node", "start 'tiercel up', or let a machine join"))
        elif all(node.drain is not Drain.NO for node in self.nodes if node.online) and self.waiting:
            action = "undrain one: 'tiercel node undrain NAME'"
            found.append(Problem("cluster", "jobs wait, and every node that is online is drained", action))
        if self.rotation is not None and self.rotation.waiting:
            found.append(_rotation_problem(self.rotation.waiting))
        for problem, jobs in self.store_problems.items():
            what = f"checkpoints of {jobs} {'job' if jobs == 1 else 'jobs'} are not safe: {problem}"
            found.append(Problem("artefact store", what, "see to the store, or to what the broker has for it"))
        return tuple(found)

    def to_json(self) -> Json:
        """The same as JSON types, with what is wrong; the keys are stable."""
        return {**json_of(self), "problems": [problem.to_json() for problem in self.problems()]}


def _node_problems(node: NodeStatus, version: str) -> Iterator[Problem]:
    about = f"node {node.id}"
    if not node.online:
        action = (
            "see whether the machine and its network are up, and start its agent there ('tiercel join', 'tiercel up'); "
            f"if it is gone for good: 'tiercel node remove {node.id}'. Where it was removed, it is listed until no job "
            "and no endpoint has anything there"
        )
        yield Problem(about, "it is offline", action)
        return
    if node.version and node.version != version:
        what = f"its agent is of version {node.version}, the broker of {version}"
        yield Problem(about, what, "install the same version on both, the broker's first")
    for problem in node.accelerator_problems:
        yield Problem(about, f"nothing new is put on an accelerator: {problem}", "see to the device on that machine")
    if abs(node.clock_ahead_seconds) >= CLOCK_SECONDS:
        yield _clock_problem(about, node.clock_ahead_seconds)
    if node.disk_total_bytes and node.disk_free_bytes < LEAST_FREE_PART * node.disk_total_bytes:
        free = f"{percent(node.disk_free_bytes / node.disk_total_bytes)} of its disk is free"
        yield Problem(about, free, "make room there; 'tiercel du' says what takes it, 'tiercel gc' removes what may go")


def _clock_problem(about: str, ahead: float) -> Problem:
    what = f"its clock is {in_words(round(abs(ahead)))} {'ahead of' if ahead > 0 else 'behind'} the broker's"
    return Problem(about, what, "set both by NTP: a certificate may count as run out there, or as not good yet")


def _rotation_problem(waiting: tuple[str, ...]) -> Problem:
    action = (
        "start their agents, of this version, or take them off the list: 'tiercel node remove NAME'; a node that is "
        "still away when the earlier authority goes ('tiercel authority finish --force') joins again with a new line"
    )
    return Problem("authority", f"its rotation waits for {', '.join(waiting)}", action)


def _endpoint_problems(endpoint: EndpointStatus, offline: set[str]) -> Iterator[Problem]:
    about = f"endpoint {endpoint.name}"
    for problem in endpoint.problems:
        yield Problem(
            about, problem, f"'tiercel explain --endpoint {endpoint.name}', 'tiercel models rollback {endpoint.name}'"
        )
    silent = [node for node in endpoint.nodes if node not in endpoint.answering]
    if endpoint.live_version and not endpoint.answering:
        gone = [node for node in silent if node in offline]
        why = (
            f"node {', '.join(gone)} is offline" if gone else f"nothing is loaded on {', '.join(silent) or 'any node'}"
        )
        yield Problem(about, f"nobody answers for it: {why}", "bring that node back, train it anew, or delete it")
    elif silent and endpoint.live_version:
        is_away = bool(offline.intersection(silent))
        action = "bring that node back" if is_away else f"'tiercel explain --endpoint {endpoint.name}' says why"
        yield Problem(about, f"it does not answer on {', '.join(silent)}", f"the others answer; {action}")
