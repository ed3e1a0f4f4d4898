"""Between the wire's messages about accelerators and the broker's words; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.actors.node import AcceleratorHeard
from tiercel.core.errors import InvalidSpecError
from tiercel.core.nodes import Accelerator
from tiercel.v1 import jobs_pb2, nodes_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.core.jobs import Job
    from tiercel.core.shares import AcceleratorShare

MAX_PER_NODE = 256


def accelerators_of(hello: nodes_pb2.NodeHello) -> tuple[Accelerator, ...]:
    """The accelerators that an agent says its node has, in its order.

    Raises:
        InvalidSpecError: They cannot be told apart, or say too little; ``field`` names which.
    """
    if len(hello.accelerators) > MAX_PER_NODE:
        raise _refuse("hello.accelerators", f"are {len(hello.accelerators)}; a node has {MAX_PER_NODE} at most")
    found: dict[str, Accelerator] = {}
    for index, told in enumerate(hello.accelerators):
        if not told.id or told.id in found:
            raise _refuse(f"hello.accelerators[{index}].id", f"{told.id!r} is missing or was there before")
        if told.memory_bytes <= 0:
            raise _refuse(f"hello.accelerators[{index}].memory_bytes", "is missing; say how much memory jobs may use")
        found[told.id] = Accelerator(told.id, told.name, told.memory_bytes, told.problem)
    return tuple(found.values())


def heard_of(beat: nodes_pb2.Heartbeat) -> tuple[AcceleratorHeard, ...]:
    """How accelerators are, as a heartbeat has it; what cannot be is taken for not known."""
    return tuple(
        AcceleratorHeard(
            id=told.id,
            utilisation=told.utilisation if told.HasField("utilisation") and 0 <= told.utilisation <= 1 else None,
            memory_used_bytes=told.memory_used_bytes,
            problem=told.problem,
        )
        for told in beat.accelerators
    )


def accelerator_to_wire(
    accelerator: Accelerator, jobs: Iterable[Job], heard: Mapping[str, AcceleratorHeard]
) -> jobs_pb2.NodeAccelerator:
    """An accelerator as the wire has it.

    Args:
        accelerator: The device.
        jobs: Those that hold something of its node.
        heard: How devices are, by id; one that is missing is not known about.
    """
    held = [share for job in jobs for share in _shares(job) if share.id == accelerator.id]
    now = heard.get(accelerator.id, AcceleratorHeard(accelerator.id))
    return jobs_pb2.NodeAccelerator(
        id=accelerator.id,
        name=accelerator.name,
        memory_bytes=accelerator.memory_bytes,
        memory_reserved_bytes=sum(share.memory_bytes for share in held),
        memory_used_bytes=now.memory_used_bytes,
        utilisation=now.utilisation,
        jobs=len(held),
        problem=accelerator.problem,
    )


def _shares(job: Job) -> tuple[AcceleratorShare, ...]:
    """What a job holds of accelerators, wherever: a job that is being moved holds some of two nodes."""
    here = job.share.accelerators if job.share is not None else ()
    there = job.move.share.accelerators if job.move is not None and job.is_moving else ()
    return here + there


def _refuse(field: str, message: str) -> InvalidSpecError:
    return InvalidSpecError(f"{field}: {message}", field=field)
