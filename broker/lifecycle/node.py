"""The life of a node: online while its lease holds, offline, and after a long silence gone.

Time is counted in seconds that the broker has been alive: while it was stopped, nobody could be heard.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tiercel.broker.domain.nodes import Node


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long silence is borne.

    Attributes:
        lease_seconds: Silence after which a node counts as offline; its jobs may well go on there.
        gone_after_seconds: Silence after which its jobs start again elsewhere.
    """

    lease_seconds: float = 10.0
    gone_after_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class NodeLife:
    """A node and when it was last heard of.

    Attributes:
        node: What the broker knows of it.
        last_heard_at: Seconds that the broker had been alive.
        gone: Whether its jobs have been told to start elsewhere.
    """

    node: Node
    last_heard_at: float
    gone: bool = False


class NodeNews(enum.Enum):
    """What a step says that others must hear."""

    ONLINE = "online"
    OFFLINE = "offline"
    GONE = "gone"


def connected(life: NodeLife, hello: Node, alive: float) -> tuple[NodeLife, NodeNews]:
    """The node's agent opened a stream: a new lease epoch begins."""
    node = replace(hello, online=True, lease_epoch=life.node.lease_epoch + 1)
    return NodeLife(node, alive), NodeNews.ONLINE


def heard(life: NodeLife, lease_epoch: int, alive: float) -> NodeLife:
    """A message of the present epoch renews the lease while it holds.

    Neither a message of an older epoch nor one that comes too late does: that node has to connect again.
    """
    if lease_epoch != life.node.lease_epoch or not life.node.online:
        return life
    return replace(life, last_heard_at=alive)


def ticked(life: NodeLife, settings: LeaseSettings, alive: float) -> tuple[NodeLife, NodeNews | None]:
    """Time passed: the lease may have run out."""
    silence = alive - life.last_heard_at
    if life.node.online and silence > settings.lease_seconds:
        return replace(life, node=replace(life.node, online=False)), NodeNews.OFFLINE
    if not life.node.online and not life.gone and silence > settings.gone_after_seconds:
        return replace(life, gone=True), NodeNews.GONE
    return life, None
