"""What takes room on disks, and what of it goes: as tenants are told."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.jsonable import Jsonable

MAX_PARTS = 32
MAX_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class RoomTaken(Jsonable):
    """What some things of one kind take.

    Attributes:
        name: What they are, such as ``logs``.
        size_bytes: What they take.
        count: How many there are; 0 where nobody counts them.
    """

    name: str
    size_bytes: int
    count: int = 0


@dataclass(frozen=True, slots=True)
class NodeDisk(Jsonable):
    """What takes room on a node, as its agent measured it last.

    Attributes:
        node_id: The node.
        parts: By folder of the agent's state directory.
        free_bytes: What its file system has left.
        total_bytes: What that has in all.
    """

    node_id: str
    parts: tuple[RoomTaken, ...]
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class DiskUse(Jsonable):
    """What takes room.

    Attributes:
        own: What is the tenant's at the broker.
        broker: What the broker has for all tenants together.
        nodes: What nodes have; of those whose agents have said so.
    """

    own: tuple[RoomTaken, ...]
    broker: tuple[RoomTaken, ...]
    nodes: tuple[NodeDisk, ...]


@dataclass(frozen=True, slots=True)
class Removal(Jsonable):
    """Something that is not kept any longer.

    Attributes:
        job_id: The job that it is of; empty for projects.
        tenant: Whose.
        what: ``events``, ``logs``, ``files`` or ``projects``.
        count: How many.
        size_bytes: What they take, as far as that is known.
        reason: Why they go, in plain words.
    """

    job_id: str
    tenant: str
    what: str
    count: int
    size_bytes: int
    reason: str
