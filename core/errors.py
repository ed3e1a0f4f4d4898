"""Everything that can go wrong in a way somebody should read about: the one catalogue, with each transport's status.

::

    TiercelError               code                gRPC status          HTTP
    ├── InvalidRequestError    invalid_request     INVALID_ARGUMENT     400  a field is wrong; names it
    │   └── InvalidSpecError   invalid_spec        INVALID_ARGUMENT     400  the same of a job or a call to the broker
    ├── NotAuthenticatedError  not_authenticated   UNAUTHENTICATED      401  no token, or one that nobody has
    ├── NotAllowedError        not_allowed         PERMISSION_DENIED    403  not for web pages, or for nobody here
    ├── NotFoundError          not_found           NOT_FOUND            404  there is no such thing
    ├── ConflictError          conflict            ALREADY_EXISTS       409  what is there must not be changed
    ├── NodeTakenError         node_taken          ALREADY_EXISTS       409  another agent speaks for the node now
    ├── EndpointBusyError      endpoint_busy       FAILED_PRECONDITION  409  another job or tenant feeds the endpoint
    ├── DeadlineOutOfReachError deadline_out_of_reach FAILED_PRECONDITION 409 a hard deadline would not be kept
    ├── ProtocolError          protocol            FAILED_PRECONDITION  409  the peer speaks another version
    ├── ArtefactRefusedError   artefact_refused    FAILED_PRECONDITION  422  a model on disk is not fit to be served
    ├── TooLargeError          too_large           RESOURCE_EXHAUSTED   413  over a limit in bytes
    ├── QuotaExceededError     quota_exceeded      RESOURCE_EXHAUSTED   429  as many active jobs as the tenant may have
    ├── RateExceededError      rate_exceeded       RESOURCE_EXHAUSTED   429  more often than one may; says from when on
    ├── CapacityExceededError  capacity_exceeded   RESOURCE_EXHAUSTED   503  no room for one more request; send fewer
    ├── OverloadedError        overloaded          UNAVAILABLE          503  too much at once; may be repeated as it is
    ├── UnavailableError       unavailable         UNAVAILABLE          503  a part that is needed does not answer yet
    │   └── CannotWriteError   cannot_write        RESOURCE_EXHAUSTED   507  the broker's disk takes nothing now
    ├── NodeOfflineError       node_offline        FAILED_PRECONDITION  409  what has it is a node that is offline
    ├── DeadlineExceededError  deadline_exceeded   DEADLINE_EXCEEDED    504  the answer would come too late
    ├── LeaseLostError         lease_lost          ABORTED              409  a node's stream does not count any more
    ├── StoreDamagedError      store_damaged       DATA_LOSS            500  what the broker has stored is damaged
    ├── InferenceFailedError   inference_failed    INTERNAL             500  the model failed while it ran
    ├── IllegalTransitionError illegal_transition  INTERNAL             -    a bug of ours: an event without an edge
    ├── TierMissedError        tier_missed         (the client's own)   -    what was waited for does not come
    └── SetupError             setup               (no call's)          -    a process cannot start like this

The agent's and the training library's are below them in ``trainer_agent/errors.py``: they become the reason of a run or
a delivery, and no call's status. What only HTTP can get wrong is ``HttpRefusedError`` in ``serving/rest/messages.py``.

A message is a sentence or two for whoever called: it names the field that is wrong (:func:`wrong_field`), and says
what to do. ``code`` is stable: programs may rely on it. The broker sends it in the trailing metadata key
:data:`CODE_KEY`, and the field in :data:`FIELD_KEY`. A status is a name of ``grpc.StatusCode``, since only the adapters
know gRPC. They translate in one place each: ``broker/api/errors.py``, ``serving/grpc/adapter.py`` and
``serving/rest/messages.py``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

CODE_KEY = "tiercel-error-code"
FIELD_KEY = "tiercel-error-field"


class TiercelError(Exception):
    """Base of all errors that carry a message made for people.

    Args:
        message: What is wrong and what to do about it, in a sentence or two.
        field: Name of the request's field that is wrong, e.g. ``tiers[1].target``; empty when none is.
    """

    code: ClassVar[str] = "internal"
    grpc_status: ClassVar[str] = "INTERNAL"
    http_status: int = 500

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequestError(TiercelError):
    """A field of a request is missing, malformed or impossible."""

    code = "invalid_request"
    grpc_status = "INVALID_ARGUMENT"
    http_status = 400


class InvalidSpecError(InvalidRequestError):
    """A field of a job, or of another call to the broker, is missing, malformed or impossible."""

    code = "invalid_spec"


def wrong_field(field: str, message: str) -> InvalidSpecError:
    """The error about one field, whose sentence begins with its name.

    Args:
        field: The field, e.g. ``tiers[1].target``.
        message: What is wrong with it and what to do, e.g. ``is missing; give a number``.
    """
    return InvalidSpecError(f"{field}: {message}", field=field)


class NotAuthenticatedError(TiercelError):
    """The call carries no token, or one that belongs to nobody."""

    code = "not_authenticated"
    grpc_status = "UNAUTHENTICATED"
    http_status = 401


class NotAllowedError(TiercelError):
    """The caller may not do this."""

    code = "not_allowed"
    grpc_status = "PERMISSION_DENIED"
    http_status = 403


class NotFoundError(TiercelError):
    """There is no such job, endpoint, node, model, version or address, or it is another tenant's."""

    code = "not_found"
    grpc_status = "NOT_FOUND"
    http_status = 404


class ConflictError(TiercelError):
    """What is there already must not be changed."""

    code = "conflict"
    grpc_status = "ALREADY_EXISTS"
    http_status = 409


class NodeTakenError(TiercelError):
    """Another agent of the same name is connected."""

    code = "node_taken"
    grpc_status = "ALREADY_EXISTS"
    http_status = 409


class EndpointBusyError(TiercelError):
    """The endpoint belongs to somebody else, or another active job feeds it."""

    code = "endpoint_busy"
    grpc_status = "FAILED_PRECONDITION"
    http_status = 409


class DeadlineOutOfReachError(TiercelError):
    """A hard deadline would not be kept, by what is foretold, or nobody can tell."""

    code = "deadline_out_of_reach"
    grpc_status = "FAILED_PRECONDITION"
    http_status = 409


class ProtocolError(TiercelError):
    """The peer speaks another version of the contract; the message says which side to upgrade."""

    code = "protocol"
    grpc_status = "FAILED_PRECONDITION"
    http_status = 409


class ArtefactRefusedError(TiercelError):
    """A model on disk is not fit to be served; what was live stays live."""

    code = "artefact_refused"
    grpc_status = "FAILED_PRECONDITION"
    http_status = 422


class TooLargeError(TiercelError):
    """The request, its answer, or what the model needs in between, is over a size limit."""

    code = "too_large"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 413


class QuotaExceededError(TiercelError):
    """The tenant has, or has used, as much as it may.

    Args:
        message: What there is too much of.
        field: Name of the request's field that is wrong; empty when none is.
        seconds: After how long it may be worth asking again; mostly nobody knows when there is room.
    """

    code = "quota_exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 429

    def __init__(self, message: str, *, field: str = "", seconds: float = 60.0) -> None:
        super().__init__(message, field=field)
        self.seconds = seconds


class RateExceededError(TiercelError):
    """Who asks does so more often than agreed; nothing was done.

    Args:
        message: What there is too much of.
        seconds: After how long the same is let through.
    """

    code = "rate_exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 429

    def __init__(self, message: str, *, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class CapacityExceededError(TiercelError):
    """The inference server has no room for one more request; nothing was done, fewer or later ones are welcome."""

    code = "capacity_exceeded"
    # Not UNAVAILABLE: libraries repeat such calls by themselves, which is more of what there is too much of.
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 503


class OverloadedError(TiercelError):
    """The broker has too many calls or messages waiting; nothing was done, trying again later is safe."""

    code = "overloaded"
    grpc_status = "UNAVAILABLE"
    http_status = 503


class UnavailableError(TiercelError):
    """A part that the call needs is not there yet, or does not answer; trying again later is safe."""

    code = "unavailable"
    grpc_status = "UNAVAILABLE"
    http_status = 503


class CannotWriteError(UnavailableError):
    """What the call would change cannot be kept: the disk is full, or somebody else holds the database.

    Nothing was changed, for certain; what only reads goes on working.
    """

    code = "cannot_write"
    # Not UNAVAILABLE: libraries repeat such calls by themselves, and a full disk is not made emptier by that.
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 507


class NodeOfflineError(TiercelError):
    """What the call asks for is on a node that is offline; nobody knows when it is back."""

    code = "node_offline"
    # Not UNAVAILABLE: clients repeat such calls for a while, and a person should hear of this at once.
    grpc_status = "FAILED_PRECONDITION"
    http_status = 409


class DeadlineExceededError(TiercelError):
    """The answer would come later than the caller or the server allows."""

    code = "deadline_exceeded"
    grpc_status = "DEADLINE_EXCEEDED"
    http_status = 504


class LeaseLostError(TiercelError):
    """A node's stream does not count any more: a newer one took over, or it was silent for too long."""

    code = "lease_lost"
    grpc_status = "ABORTED"
    http_status = 409


class StoreDamagedError(TiercelError):
    """The broker's database cannot be read as it is: trying again is of no use, a copy has to take its place."""

    code = "store_damaged"
    grpc_status = "DATA_LOSS"


class InferenceFailedError(TiercelError):
    """The model failed while it ran on well-formed inputs."""

    code = "inference_failed"


class TierMissedError(TiercelError):
    """The tier that was waited for will not be delivered any more."""

    code = "tier_missed"


class SetupError(TiercelError):
    """A process cannot start like this; the message says what to do."""

    code = "setup"


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
