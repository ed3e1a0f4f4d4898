"""Nodes and what they offer."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.data_sets import NodeData


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device that trains or serves faster than the CPU."""

    id: str  # as its driver calls it for good: ``GPU-...`` or, for a slice of one, ``MIG-...``
    name: str  # its make
    memory_bytes: int  # all of its memory
    problem: str = ""  # why nothing new should be put on it, in plain words; empty while it is well


class Drain(enum.Enum):
    """Whether a node is drained: nothing new starts there, and what runs there ends by itself or is moved away."""

    NO = "no"
    WAIT = "wait"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with an agent, as the broker knows it."""

    id: str  # name, unique among nodes
    cpu_cores: float  # cores that jobs may use
    memory_bytes: int  # memory that jobs may use, in bytes
    runtimes: tuple[str, ...] = ()  # what it can run jobs with, the preferred first
    limits: str = ""  # how it enforces CPU shares
    images: frozenset[str] = field(default_factory=frozenset)  # container images at hand
    online: bool = True  # whether its lease holds
    lease_epoch: int = 0  # counts its connections; messages of older ones are void
    # Where its inference server answers over HTTP: ``host:port``, ``https://host:port``, or empty.
    serving_http: str = ""
    serving_grpc: str = ""  # the same over gRPC, or ``grpcs://host:port``
    accelerators: tuple[Accelerator, ...] = ()  # devices that jobs may use, in the order of the machine's bus
    data: tuple[NodeData, ...] = ()  # data sets that its operator offers, by name
    labels: Mapping[str, str] = field(default_factory=dict)  # what its operator says of it, for jobs to ask for
    local_http: str = ""  # where it answers on the broker's own machine in the clear, ``host:port``, or empty
    local_grpc: str = ""  # the same over gRPC
    drain: Drain = Drain.NO  # whether the broker's operator has it drained
    version: str = ""  # the version of Tiercel that its agent is of; empty where it does not say
