"""The life of a node: online while its lease holds, offline, and after a long silence gone.

Time is counted in seconds that the broker has been alive: while it was stopped, nobody could be heard.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tiercel.core.nodes import Drain, Node


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long silence is borne."""

    lease_seconds: float = 10.0  # silence after which a node counts as offline; its jobs may well go on there
    gone_after_seconds: float = 120.0  # silence after which its jobs start again elsewhere, if its agent keeps a fence
    # Whether an agent gets a fence also while no other node is known, which could take its jobs over.
    fences_alone: bool = True


@dataclass(frozen=True, slots=True)
class Fence:
    """How long an agent may go without us before it ends what may soon be started elsewhere."""

    stop_after_seconds: float  # when it begins to stop its runs
    # When none of them may live; earlier than the silence after which they are started elsewhere.
    end_after_seconds: float


@dataclass(frozen=True, slots=True)
class NodeLife:
    """A node and when it was last heard of."""

    node: Node  # what the broker knows of it
    last_heard_at: float  # seconds that the broker had been alive
    gone: bool = False  # whether its jobs have been told to start elsewhere
    instance: str = ""  # which life of which agent it is; empty before the first
    has_stream: bool = False  # whether that agent's stream is open, as far as we know
    fenced: bool = False  # whether the agent said that it keeps a fence


class NodeNews(enum.Enum):
    """What a step says that others must hear."""

    ONLINE = "online"
    OFFLINE = "offline"
    GONE = "gone"


def may_connect(life: NodeLife, instance: str) -> bool:
    """Whether an agent may speak for the node: not while another one is heard."""
    return instance == life.instance or not (life.has_stream and life.node.online)


def taken_words(node_id: str) -> str:
    """What an agent is told that may not speak for a node."""
    return (
        f"node {node_id}: another agent of this name is connected; give this one another --node-id, or stop the other "
        "one first"
    )


def connected(
    life: NodeLife, hello: Node, alive: float, *, instance: str = "", fenced: bool = False
) -> tuple[NodeLife, NodeNews]:
    """The node's agent opened a stream: a new lease epoch begins."""
    node = replace(hello, online=True, lease_epoch=life.node.lease_epoch + 1, drain=life.node.drain)
    return NodeLife(node, alive, instance=instance, has_stream=True, fenced=fenced), NodeNews.ONLINE


def stream_ended(life: NodeLife, lease_epoch: int) -> NodeLife:
    """A stream is over; the node has its lease for as long as that lasts."""
    return replace(life, has_stream=False) if lease_epoch == life.node.lease_epoch else life


def heard(life: NodeLife, lease_epoch: int, alive: float, *, fenced: bool | None = None) -> NodeLife:
    """A message of the present epoch renews the lease while it holds.

    Neither a message of an older epoch nor one that comes too late does: that node has to connect again.

    Args:
        life: The node.
        lease_epoch: Of the message.
        alive: When it came, seconds that the broker had been alive.
        fenced: Whether the agent keeps a fence, where the message says so.
    """
    if lease_epoch != life.node.lease_epoch or not life.node.online:
        return life
    return replace(life, last_heard_at=alive, fenced=life.fenced if fenced is None else fenced)


def drained(life: NodeLife, drain: Drain) -> NodeLife:
    """The operator has the node emptied, or no longer."""
    return replace(life, node=replace(life.node, drain=drain))


def expelled(life: NodeLife) -> NodeLife:
    """It is no node any more, and nothing is heard of it; what it has goes on there for a while."""
    return replace(life, node=replace(life.node, online=False))


def removed(life: NodeLife) -> NodeLife:
    """It is no node any more, and nothing was left there."""
    return replace(life, node=replace(life.node, online=False, drain=Drain.NO), has_stream=False, gone=True)


def fence_of(settings: LeaseSettings, known_nodes: int) -> Fence | None:
    """What agents are told; None while nobody could take a node's jobs over.

    A third of the silence, at most 30 s, is kept back for stopping runs and for clocks that differ.
    """
    if known_nodes < 2 and not settings.fences_alone:
        return None
    reserve = min(30.0, settings.gone_after_seconds / 3)
    return Fence(settings.gone_after_seconds - reserve, settings.gone_after_seconds - reserve / 3)


def ticked(life: NodeLife, settings: LeaseSettings, alive: float) -> tuple[NodeLife, NodeNews | None]:
    """Time passed: the lease may have run out."""
    silence = alive - life.last_heard_at
    if life.node.online and silence > settings.lease_seconds:
        return replace(life, node=replace(life.node, online=False)), NodeNews.OFFLINE
    if not life.node.online and not life.gone and silence > settings.gone_after_seconds:
        return replace(life, gone=True), NodeNews.GONE
    return life, None
