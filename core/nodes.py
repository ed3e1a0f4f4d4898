"""Nodes and what they offer."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.data_sets import NodeData


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device that trains or serves faster than the CPU.

    Attributes:
        id: As its driver calls it for good: ``GPU-...`` or, for a slice of one, ``MIG-...``.
        name: Its make.
        memory_bytes: All of its memory.
        problem: Why nothing new should be put on it, in plain words; empty while it is well.
    """

    id: str
    name: str
    memory_bytes: int
    problem: str = ""


class Drain(enum.Enum):
    """Whether a node is drained: nothing new starts there, and what runs there ends by itself or is moved away."""

    NO = "no"
    WAIT = "wait"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with an agent, as the broker knows it.

    Attributes:
        id: Name, unique among nodes.
        cpu_cores: Cores that jobs may use.
        memory_bytes: Memory that jobs may use, in bytes.
        runtimes: What it can run jobs with, the preferred first.
        limits: How it enforces CPU shares.
        images: Container images at hand.
        online: Whether its lease holds.
        lease_epoch: Counts its connections; messages of older ones are void.
        serving_http: Where its inference server answers over HTTP: ``host:port``, ``https://host:port``, or empty.
        serving_grpc: The same over gRPC, or ``grpcs://host:port``.
        accelerators: Devices that jobs may use, in the order of the machine's bus.
        data: Data sets that its operator offers, by name.
        labels: What its operator says of it, for jobs to ask for.
        local_http: Where it answers on the broker's own machine in the clear, ``host:port``, or empty.
        local_grpc: The same over gRPC.
        drain: Whether the broker's operator has it drained.
        version: The version of Tiercel that its agent is of; empty where it does not say.
    """

    id: str
    cpu_cores: float
    memory_bytes: int
    runtimes: tuple[str, ...] = ()
    limits: str = ""
    images: frozenset[str] = field(default_factory=frozenset)
    online: bool = True
    lease_epoch: int = 0
    serving_http: str = ""
    serving_grpc: str = ""
    accelerators: tuple[Accelerator, ...] = ()
    data: tuple[NodeData, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    local_http: str = ""
    local_grpc: str = ""
    drain: Drain = Drain.NO
    version: str = ""
