"""Everything that can go wrong in a way a user should read about.

::

    TiercelError                      code, message for the user
    ├── InvalidSpecError              invalid_spec         a field of a request is wrong; names it
    ├── NotFoundError                 not_found            no such job, endpoint or node for this tenant
    ├── EndpointBusyError             endpoint_busy        another job or another tenant feeds the endpoint
    ├── QuotaExceededError            quota_exceeded       the tenant has as many active jobs as it may
    ├── NotAuthenticatedError         not_authenticated    no token, or one that nobody has
    ├── NodeTakenError                node_taken           another agent speaks for the node now
    ├── ProtocolError                 protocol             the peer speaks another version of the contract
    ├── LeaseLostError                lease_lost           a node's stream does not count any more; connect again
    ├── OverloadedError               overloaded           a bounded queue is full; try again
    ├── UnavailableError              unavailable          a part that is needed does not answer
    │   └── CannotWriteError          cannot_write         the broker's disk takes nothing now; nothing was changed
    ├── StoreDamagedError             store_damaged        the broker's database is damaged; trying again is of no use
    └── IllegalTransitionError        illegal_transition   a bug of ours: an event in a state that has no edge for it

``code`` is stable: programs may rely on it. It crosses the wire in the trailing metadata key ``tiercel-error-code``.
"""

from __future__ import annotations

from typing import ClassVar


class TiercelError(Exception):
    """Base of all errors that carry a stable code and a message made for users.

    Args:
        message: What is wrong and what to do about it, in a sentence or two.
        field: Name of the request's field that is wrong, e.g. ``tiers[1].target``; empty when none is.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidSpecError(TiercelError):
    """A field of a request is missing, malformed or impossible."""

    code = "invalid_spec"


class NotFoundError(TiercelError):
    """The tenant has no such job, endpoint or node."""

    code = "not_found"


class EndpointBusyError(TiercelError):
    """The endpoint belongs to somebody else, or another active job feeds it."""

    code = "endpoint_busy"


class QuotaExceededError(TiercelError):
    """The tenant has as many active jobs as it may have."""

    code = "quota_exceeded"


class NotAuthenticatedError(TiercelError):
    """The call carries no token, or one that belongs to nobody."""

    code = "not_authenticated"


class NodeTakenError(TiercelError):
    """Another agent of the same name is connected."""

    code = "node_taken"


class ProtocolError(TiercelError):
    """The peer speaks another version of the contract; the message says which side to upgrade."""

    code = "protocol"


class LeaseLostError(TiercelError):
    """A node's stream does not count any more: a newer one took over, or it was silent for too long."""

    code = "lease_lost"


class OverloadedError(TiercelError):
    """A bounded queue is full; nothing was done, trying again later is safe."""

    code = "overloaded"


class UnavailableError(TiercelError):
    """A part that the call needs does not answer; trying again later is safe."""

    code = "unavailable"


class CannotWriteError(UnavailableError):
    """What the call would change cannot be kept: the disk is full, or somebody else holds the database.

    Nothing was changed, for certain; what only reads goes on working.
    """

    code = "cannot_write"


class StoreDamagedError(TiercelError):
    """The broker's database cannot be read as it is: trying again is of no use, a copy has to take its place."""

    code = "store_damaged"


class IllegalTransitionError(TiercelError):
    """A state machine got an event that its state has no edge for: a defect of Tiercel.

    Args:
        machine: Name and id of the machine, e.g. ``job 3f2a``.
        state: The state it is in.
        event: The event that does not fit.
    """

    code = "illegal_transition"

    def __init__(self, machine: str, state: str, event: object) -> None:
        super().__init__(f"{machine} is {state} and cannot handle {event!r}; please report this as a defect of Tiercel")
