"""Step "explain": what tenants are told of a decision, as far as several policies say the same.

A sentence of a single policy stands beside that policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tiercel.broker.scheduling.feasible import Need, Room, first_unmet
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.scheduling.rank import ALL_REACHED, Stage
from tiercel.core.figures import percent, plural, size
from tiercel.core.nodes import Accelerator

# --- Why a job has its share ------------------------------------------------------------------------------------------


def equal_share(others: int) -> str:
    """Why a job has its share where all jobs of a node have the same; ``others`` are the other jobs there."""
    if not others:
        return "the only job on this node: it may use all of it"
    return f"equal share with {plural(others, 'other job')} on this node"


def in_queue(why: str, weight: float, position: int, front: int) -> str:
    """Why a job has its weight by its position in a queue.

    Args:
        why: What its position follows from, as the beginning of a sentence.
        weight: Its weight.
        position: Jobs before it.
        front: Jobs in front.
    """
    if position < front:
        turn = "the one that runs now" if front == 1 else f"one of {front} that run now"
        return f"{why}: {turn}, with {percent(weight)} of the node"
    before = "1 goes" if position == 1 else f"{position} go"
    return f"{why}: {before} before it; keeps {percent(weight)} of the node until its turn"


def at_stage(stage: Stage, why: str) -> str:
    """What a job at this stage does, and ``why`` it stands where it does among those that do the same."""
    if not stage.trains:
        return f"hands over the model of its tier {stage.tiers + 1}"
    work = "all its tiers are reached" if stage.tiers == ALL_REACHED else f"works for its tier {stage.tiers + 1}"
    return f"{work}, {why}"


def accelerator_names(node: NodeView) -> Mapping[str, str]:
    """What tenants are told of each accelerator: its place on the node, since ids are long and names all alike."""
    return {view.id: f"accelerator {index}" for index, view in enumerate(node.accelerators)}


def part_of_accelerator(name: str, fraction: float, others: int) -> str:
    """What a job has of an accelerator beside ``others``."""
    if not others:
        return f"{name} to itself"
    return f"{percent(fraction)} of {name} beside {plural(others, 'other job')}"


# --- Why a job waits --------------------------------------------------------------------------------------------------


def why_waiting(job: JobView, nodes: Sequence[NodeView], rooms: Sequence[Room]) -> str:
    """The first need that no node meets, or what there is no room for.

    Args:
        job: The job.
        nodes: Those online.
        rooms: What is left of those of them that could run the job if it asked for no memory.
    """
    if not nodes:
        return "waits for a node: none is online"
    need, left = first_unmet(job, nodes)
    if need is not None:
        return _unmet(job, need, left)
    empty_enough = {node.id for node in left}
    fitting = [room for room in rooms if room.node.id in empty_enough]
    if any(room.has_memory_for(job) for room in fitting):
        return _waits_for_accelerators(job)
    kept = [
        room for room in fitting if room.kept_for not in {None, job} and room.free_bytes >= job.resources.memory_bytes
    ]
    if kept:
        return _kept(kept[0])
    free = max(room.free_bytes for room in fitting)
    return (
        f"waits for memory: it asks for {size(job.resources.memory_bytes)}, "
        f"and at most {size(free)} is free on a node that can run it; it starts when other jobs end"
    )


def _kept(room: Room) -> str:
    before = room.kept_for.id if room.kept_for is not None else ""
    return f"waits for room: what is left of {room.node.id} is kept for job {before}, which goes before it"


def _unmet(job: JobView, need: Need, nodes: Sequence[NodeView]) -> str:
    wanted = job.resources
    match need:
        case Need.HOME:
            what = f"the variants of endpoint {job.endpoint} are" if job.variant else "what it starts from is"
            return f"waits for node {job.home}, where {what}"
        case Need.RUNTIME:
            return f"waits for a node that can run jobs with {job.runtime or 'any runtime'}"
        case Need.IMAGE:
            return f"waits for a node that has the container image {job.image}"
        case Need.DATA:
            return f"waits for a node {_with_data(job.data)}: none that is online has {_them(job.data)}"
        case Need.LABELS:
            asked = ", ".join(f"{name}={value}" for name, value in sorted(job.node_labels))
            return f"waits for a node labelled {asked}: none that is online has {_them(job.node_labels)}"
        case Need.CPU_CORES:
            most = f"{max(node.cpu_cores for node in nodes):g}"
            return f"asks for {wanted.cpu_cores:g} cores; the largest node that could run it has {most}"
        case Need.MEMORY:
            most = size(max(node.memory_bytes for node in nodes))
            return f"asks for {size(wanted.memory_bytes)} of memory; the largest node that could run it has {most}"
        case Need.ACCELERATORS:
            return _lacks_accelerators(job, nodes)
        case Need.OPEN:
            drained = ", ".join(node.id for node in nodes)
            return f"waits for a node: nothing new starts on {drained}, which could run it, while drained"


def _with_data(names: Collection[str]) -> str:
    return f"with the data set{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"


def _them(names: Collection[object]) -> str:
    return "it" if len(names) == 1 else "all of them"


def _lacks_accelerators(job: JobView, nodes: Iterable[NodeView]) -> str:
    views = [node.accelerators for node in nodes]
    most = max((sum(not view.problem for view in each) for each in views), default=0)
    accelerators = [view for each in views for view in each]
    return _too_small(job, accelerators) if most >= job.resources.accelerators else _too_few(job, accelerators, most)


def _too_few(job: JobView, accelerators: Iterable[Accelerator], most: int) -> str:
    asks = f"asks for {_accelerators(job.resources.accelerators)}"
    problems = sorted({view.problem for view in accelerators if view.problem})
    because = f" ({problems[0]})" if problems else ""
    has = f"more than {most} in good order" if most else "one in good order"
    return f"{asks}; no node that could run it has {has}{because}"


def _too_small(job: JobView, accelerators: Sequence[Accelerator]) -> str:
    largest = max((view.memory_bytes for view in accelerators if not view.problem), default=0)
    least = job.resources.accelerator_memory_bytes
    problems = sorted({view.problem for view in accelerators if view.problem and view.memory_bytes >= least})
    because = f" (a larger one: {problems[0]})" if problems else ""
    asked = size(least)
    each = " on each" if job.resources.accelerators > 1 else ""
    return (
        f"asks for {asked} of accelerator memory{each}; the largest accelerator that it could use has {size(largest)}"
        f"{because}"
    )


def _waits_for_accelerators(job: JobView) -> str:
    wanted = job.resources
    if not wanted.accelerator_memory_bytes:
        what = f"{_accelerators(wanted.accelerators)} to itself"
        return f"waits for {what}: other jobs are on those that could run it; it starts when they end"
    what = f"{size(wanted.accelerator_memory_bytes)} on {_accelerators(wanted.accelerators)}"
    return f"waits for accelerator memory: it asks for {what}, and other jobs hold it; it starts when they end"


def _accelerators(count: int) -> str:
    return "an accelerator" if count == 1 else f"{count} accelerators of one node"
