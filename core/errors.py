"""Everything that can go wrong in a way a user should read about: the catalogue of broker, store and client.

::

    TiercelError                  code                gRPC status
    ├── InvalidSpecError          invalid_spec        INVALID_ARGUMENT     a field of a request is wrong; names it
    ├── NotFoundError             not_found           NOT_FOUND            the tenant has no such job, endpoint or node
    ├── EndpointBusyError         endpoint_busy       FAILED_PRECONDITION  another job or tenant feeds the endpoint
    ├── QuotaExceededError        quota_exceeded      RESOURCE_EXHAUSTED   as many active jobs as the tenant may have
    ├── NotAuthenticatedError     not_authenticated   UNAUTHENTICATED      no token, or one that nobody has
    ├── NodeTakenError            node_taken          ALREADY_EXISTS       another agent speaks for the node now
    ├── ProtocolError             protocol            FAILED_PRECONDITION  the peer speaks another version
    ├── LeaseLostError            lease_lost          ABORTED              a node's stream does not count any more
    ├── OverloadedError           overloaded          UNAVAILABLE          a bounded queue is full; try again
    ├── UnavailableError          unavailable         UNAVAILABLE          a part that is needed does not answer
    │   └── CannotWriteError      cannot_write        RESOURCE_EXHAUSTED   the broker's disk takes nothing now
    ├── StoreDamagedError         store_damaged       DATA_LOSS            the broker's database is damaged
    ├── TierMissedError           tier_missed         (the client's own)   what was waited for does not come
    └── IllegalTransitionError    illegal_transition  INTERNAL             a bug of ours: an event without an edge

``code`` is stable: programs may rely on it. It crosses the wire in the trailing metadata key :data:`CODE_KEY`, and the
field that is wrong in :data:`FIELD_KEY`. A status is a name of ``grpc.StatusCode``: only the adapters know gRPC.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

CODE_KEY = "tiercel-error-code"
FIELD_KEY = "tiercel-error-field"


class TiercelError(Exception):
    """Base of all errors that carry a stable code and a message made for users.

    Args:
        message: What is wrong and what to do about it, in a sentence or two.
        field: Name of the request's field that is wrong, e.g. ``tiers[1].target``; empty when none is.
    """

    code: ClassVar[str] = "internal"
    grpc_status: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidSpecError(TiercelError):
    """A field of a request is missing, malformed or impossible."""

    code = "invalid_spec"
    grpc_status = "INVALID_ARGUMENT"


class NotFoundError(TiercelError):
    """The tenant has no such job, endpoint or node."""

    code = "not_found"
    grpc_status = "NOT_FOUND"


class EndpointBusyError(TiercelError):
    """The endpoint belongs to somebody else, or another active job feeds it."""

    code = "endpoint_busy"
    grpc_status = "FAILED_PRECONDITION"


class QuotaExceededError(TiercelError):
    """The tenant has as many active jobs as it may have."""

    code = "quota_exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"


class NotAuthenticatedError(TiercelError):
    """The call carries no token, or one that belongs to nobody."""

    code = "not_authenticated"
    grpc_status = "UNAUTHENTICATED"


class NodeTakenError(TiercelError):
    """Another agent of the same name is connected."""

    code = "node_taken"
    grpc_status = "ALREADY_EXISTS"


class ProtocolError(TiercelError):
    """The peer speaks another version of the contract; the message says which side to upgrade."""

    code = "protocol"
    grpc_status = "FAILED_PRECONDITION"


class LeaseLostError(TiercelError):
    """A node's stream does not count any more: a newer one took over, or it was silent for too long."""

    code = "lease_lost"
    grpc_status = "ABORTED"


class OverloadedError(TiercelError):
    """A bounded queue is full; nothing was done, trying again later is safe."""

    code = "overloaded"
    grpc_status = "UNAVAILABLE"


class UnavailableError(TiercelError):
    """A part that the call needs does not answer; trying again later is safe."""

    code = "unavailable"
    grpc_status = "UNAVAILABLE"


class CannotWriteError(UnavailableError):
    """What the call would change cannot be kept: the disk is full, or somebody else holds the database.

    Nothing was changed, for certain; what only reads goes on working.
    """

    code = "cannot_write"
    # Not UNAVAILABLE: libraries repeat such calls by themselves, and a full disk is not made emptier by that.
    grpc_status = "RESOURCE_EXHAUSTED"


class StoreDamagedError(TiercelError):
    """The broker's database cannot be read as it is: trying again is of no use, a copy has to take its place."""

    code = "store_damaged"
    grpc_status = "DATA_LOSS"


class TierMissedError(TiercelError):
    """The tier that was waited for will not be delivered any more."""

    code = "tier_missed"


class IllegalTransitionError(TiercelError):
    """A state machine got an event that its state has no edge for: a defect of Tiercel.

    Args:
        machine: Name and id of the machine, e.g. ``job 3f2a``.
        state: The state it is in.
        event: The event that does not fit.

    Attributes:
        history: What led to the state, the oldest first, in words; set by whoever keeps it.
    """

    code = "illegal_transition"

    def __init__(self, machine: str, state: str, event: object) -> None:
        super().__init__(f"{machine} is {state} and cannot handle {event!r}; please report this as a defect of Tiercel")
        self.history: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The message, and in its own lines what led there."""
        return "\n  ".join((self.message, *self.history))


def _below(kind: type[TiercelError]) -> list[type[TiercelError]]:
    return [found for child in kind.__subclasses__() for found in (child, *_below(child))]


ERRORS = MappingProxyType({error.code: error for error in _below(TiercelError)})
"""The catalogue by code, without its root."""
