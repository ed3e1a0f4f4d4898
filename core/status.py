"""The cluster at a glance: what there is, what waits, and what is wrong, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiercel.core.authority import AuthorityState
from tiercel.core.nodes import Drain
from tiercel.core.views import Json, Jsonable, json_of

LEAST_FREE_PART = 0.05
"""A node's disk with less than this part free is something to see to."""


@dataclass(frozen=True, slots=True)
class NodeStatus(Jsonable):
    """A node at a glance.

    Attributes:
        id: Its name.
        online: Whether it answers.
        drain: Whether it is drained.
        version: The version of Tiercel that its agent is of; empty where it does not say.
        jobs: Jobs that are there, of all tenants.
        cpu_cores: Cores that jobs may use.
        cpu_cores_asked: Cores that the jobs there ask for together; it may be more than there are.
        memory_bytes: Memory that jobs may use.
        memory_reserved_bytes: What the jobs there have reserved of it.
        accelerators: How many it has.
        accelerators_held: How many of them a job holds.
        accelerator_problems: What is wrong with which accelerator, in plain words.
        disk_free_bytes: What its disk has left; 0 with ``disk_total_bytes`` while nobody knows.
        disk_total_bytes: What its disk has in all.
    """

    id: str
    online: bool
    drain: Drain = Drain.NO
    version: str = ""
    jobs: int = 0
    cpu_cores: float = 0.0
    cpu_cores_asked: float = 0.0
    memory_bytes: int = 0
    memory_reserved_bytes: int = 0
    accelerators: int = 0
    accelerators_held: int = 0
    accelerator_problems: tuple[str, ...] = ()
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EndpointStatus(Jsonable):
    """An endpoint at a glance.

    Attributes:
        name: The endpoint.
        tenant: Its owner.
        live_version: The version that shall answer; 0 for none yet.
        nodes: Where it shall answer.
        answering: On which of these nodes a version of it answers.
        problems: Why another one answers there, or none, in plain words.
    """

    name: str
    tenant: str
    live_version: int = 0
    nodes: tuple[str, ...] = ()
    answering: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingJob(Jsonable):
    """A job that waits.

    Attributes:
        id: The job.
        tenant: Its owner.
        reason: What for, in plain words.
    """

    id: str
    tenant: str
    reason: str


@dataclass(frozen=True, slots=True)
class Problem(Jsonable):
    """Something to see to.

    Attributes:
        about: What it is about: a node, an endpoint, or the cluster.
        what: What is wrong.
        action: What to do.
    """

    about: str
    what: str
    action: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster at a glance.

    Attributes:
        version: The version of Tiercel that the broker is of.
        tenant: Whose jobs and endpoints it tells of; empty for those of all tenants.
        nodes: All nodes, by name.
        jobs: How many jobs that are not over are in which state.
        waiting: Some of those that wait, the oldest first.
        endpoints: By name.
        rotation: How far it is that another authority takes the place of the broker's; None while none does.
        store_problems: Why copies of checkpoints are not in the artefact store, in plain words, and of how many jobs.
    """

    version: str
    tenant: str = ""
    nodes: tuple[NodeStatus, ...] = ()
    jobs: Mapping[str, int] = field(default_factory=dict)
    waiting: tuple[WaitingJob, ...] = ()
    endpoints: tuple[EndpointStatus, ...] = ()
    rotation: AuthorityState | None = None
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
            f"if it is gone for good: 'tiercel node remove {node.id}'"
        )
        yield Problem(about, "it is offline", action)
        return
    if node.version and node.version != version:
        what = f"its agent is of version {node.version}, the broker of {version}"
        yield Problem(about, what, "install the same version on both, the broker's first")
    for problem in node.accelerator_problems:
        yield Problem(about, f"nothing new is put on an accelerator: {problem}", "see to the device on that machine")
    if node.disk_total_bytes and node.disk_free_bytes < LEAST_FREE_PART * node.disk_total_bytes:
        free = f"{100 * node.disk_free_bytes / node.disk_total_bytes:.1f} % of its disk is free"
        yield Problem(about, free, "make room there; 'tiercel du' says what takes it, 'tiercel gc' removes what may go")


def _rotation_problem(waiting: tuple[str, ...]) -> Problem:
    action = (
        "start their agents, of this version, or take them off the list: 'tiercel node remove NAME'; a node that is "
        "still away when the earlier authority goes ('tiercel authority finish --force') joins again with a new line"
    )
    return Problem("authority", f"its rotation waits for {', '.join(waiting)}", action)


def _endpoint_problems(endpoint: EndpointStatus, offline: set[str]) -> Iterator[Problem]:
    about = f"endpoint {endpoint.name}"
    for problem in endpoint.problems:
        yield Problem(about, problem, f"'tiercel explain {endpoint.name}', 'tiercel models rollback {endpoint.name}'")
    silent = [node for node in endpoint.nodes if node not in endpoint.answering]
    if endpoint.live_version and not endpoint.answering:
        gone = [node for node in silent if node in offline]
        why = (
            f"node {', '.join(gone)} is offline" if gone else f"nothing is loaded on {', '.join(silent) or 'any node'}"
        )
        yield Problem(about, f"nobody answers for it: {why}", "bring that node back, or train it anew elsewhere")
    elif silent and endpoint.live_version:
        yield Problem(about, f"it does not answer on {', '.join(silent)}", "the others answer; bring that node back")
