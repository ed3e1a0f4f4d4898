"""What the actor of a node is told, and what it says is wanted of the node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.peers import WantedDelivery, WantedRun

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.core.data_sets import NodeData
    from tiercel.core.disk_use import NodeDisk
    from tiercel.core.endpoint_access import AccessTable
    from tiercel.core.nodes import Accelerator, Drain, Node
    from tiercel.core.routes import Routes
    from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class NodeConnected:
    """An agent of the node opened a stream and knows of ``runs``; ``epoch`` is answered with the new lease epoch.

    ``is_local`` says whether it is on the broker's machine.
    """

    node: Node
    runs: frozenset[str]
    instance: str
    fenced: bool
    epoch: asyncio.Future[int]
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream of this lease epoch is over."""

    lease_epoch: int


@dataclass(frozen=True, slots=True)
class AcceleratorStatus:
    """How an accelerator is, as its agent said last."""

    id: str  # the device
    utilisation: float | None = None  # fraction of time in which it computed lately; None where nobody knows
    memory_used_bytes: int = 0  # memory that is held, by whoever it may be
    problem: str = ""  # why nothing new should be put on it; empty while it is well


def as_heard(known: tuple[Accelerator, ...], heard: Mapping[str, AcceleratorStatus]) -> tuple[Accelerator, ...]:
    """The devices of the hello with the problems of now; what a hello did not name is not there."""
    return tuple(replace(each, problem=heard[each.id].problem) if each.id in heard else each for each in known)


@dataclass(frozen=True, slots=True)
class ServedStatus:
    """What a node's inference server has of an endpoint, or of one of its variants."""

    version: int = 0  # number of the version that answers; 0 for none
    problem: str = ""  # why that is not the one that shall; empty where nothing is known to be wrong


@dataclass(frozen=True, slots=True)
class ServingReported:
    """Where a node's inference server answers, empty while it does not, and what; by endpoint and variant.

    On the broker's machine it may answer in the clear as well, where it says so as ``local_http`` and ``local_grpc``.
    ``copies`` has the SHA-256 of the versions whose files are there, ``failed`` why copies that shall be there are not;
    by endpoint and number. ``routes_number`` is that of the table of who answers by which it goes.
    """

    http: str = ""
    grpc: str = ""
    served: Mapping[tuple[str, str], ServedStatus] = field(default_factory=dict)
    local_http: str = ""
    local_grpc: str = ""
    copies: Mapping[tuple[str, int], str] = field(default_factory=dict)
    failed: Mapping[tuple[str, int], str] = field(default_factory=dict)
    routes_number: int = 0


@dataclass(frozen=True, slots=True)
class NodeReported:
    """The agent said something, and perhaps something new about its node.

    An agent that has just begun may not know of its inference server yet, although that answers: an empty ``serving``
    of a hello says nothing.
    """

    lease_epoch: int
    images: frozenset[str] | None = None
    serving: ServingReported | None = None
    is_hello: bool = False
    accelerators: tuple[AcceleratorStatus, ...] | None = None
    fenced: bool | None = None
    data: tuple[NodeData, ...] | None = None
    disk: NodeDisk | None = None
    clock_ahead_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NodeTicked:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class RunWithdrawn:
    """A run is no longer wanted."""

    run_id: str


@dataclass(frozen=True, slots=True)
class DeliveryWithdrawn:
    """A delivery is no longer wanted."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class EndpointSharesDeclared:
    """Endpoints may use this much of the node, and should answer in so many seconds; the others are not limited."""

    shares: tuple[tuple[str, Share], ...]
    objectives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """Other nodes answer for endpoints than before."""


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """Others may ask endpoints than before."""


@dataclass(frozen=True, slots=True)
class ModelsDeclared:
    """Which versions of an endpoint shall answer here, one of each of its variants."""

    endpoint: str
    models: tuple[WantedModel, ...]


@dataclass(frozen=True, slots=True)
class DrainSet:
    """The operator has the node emptied, or no longer."""

    drain: Drain


@dataclass(frozen=True, slots=True)
class NodeExpelled:
    """The operator took it off the list; something may be left there."""


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """It is no node any more, and nothing is left there."""


NodeMessage = (
    NodeConnected
    | StreamEnded
    | NodeReported
    | NodeTicked
    | WantedRun
    | WantedDelivery
    | RunWithdrawn
    | DeliveryWithdrawn
    | EndpointSharesDeclared
    | ModelsDeclared
    | RoutesChanged
    | DrainSet
    | NodeExpelled
    | NodeRemoved
    | AccessChanged
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that is wanted of a node; ``generation`` grows with each change.

    ``endpoints`` is None until something was decided about them: then they keep what they have. ``routes`` is None
    until it is known who answers, and ``access`` before the first connection; both are the same object for as long as
    they say the same. ``answered_elsewhere`` are endpoints that all know to answer on other nodes: they may go.
    """

    generation: int
    runs: tuple[WantedRun, ...]
    deliveries: tuple[WantedDelivery, ...]
    endpoints: EndpointSharesDeclared | None = None
    models: tuple[WantedModel, ...] = ()
    routes: Routes | None = None
    access: AccessTable | None = None
    answered_elsewhere: frozenset[str] = frozenset()
