"""Everything that can go wrong in the server in a way a caller should read about.

::

    ServingError                        HTTP  gRPC                 meaning
    ├── InvalidRequestError             400   INVALID_ARGUMENT     a field of the request is wrong; it is named
    ├── UnauthenticatedError            401   UNAUTHENTICATED      for operators; their token is missing or wrong
    ├── NotAllowedError                 403   PERMISSION_DENIED    not for web pages, or for nobody here
    ├── NotFoundError                   404   NOT_FOUND            no such model, version or address
    ├── MethodNotAllowedError           405   UNIMPLEMENTED        the address exists, the HTTP method does not fit
    ├── RequestTimeoutError             408   DEADLINE_EXCEEDED    the request did not arrive in time
    ├── ConflictError                   409   ALREADY_EXISTS       what is there must not be changed
    ├── LengthRequiredError             411   INVALID_ARGUMENT     an inference request without a body
    ├── TooLargeError                   413   RESOURCE_EXHAUSTED   the request, or its answer, is over a size limit
    ├── UnsupportedEncodingError        415   UNIMPLEMENTED        a body packed in a way the server does not read
    ├── ExpectationFailedError          417   UNIMPLEMENTED        an Expect header other than 100-continue
    ├── MisdirectedError                421   UNIMPLEMENTED        it is addressed to a name that is not this server's
    ├── ArtefactRefusedError            422   FAILED_PRECONDITION  a model on disk is not fit to be served
    ├── HeadersTooLargeError            431   RESOURCE_EXHAUSTED   the HTTP headers are over the limit
    ├── InferenceFailedError            500   INTERNAL             the model failed while it ran
    ├── NotImplementedHereError         501   UNIMPLEMENTED        a transfer coding other than chunked
    ├── NotReadyError                   503   UNAVAILABLE          the model is still being loaded; try again
    ├── OverloadedError                 503   RESOURCE_EXHAUSTED   a bounded queue is full; nothing was done, try again
    └── DeadlineExceededError           504   DEADLINE_EXCEEDED    the answer would come too late

``failure_reason`` is the label under which an inference that failed so is counted, in the words of Triton's metrics:
REJECTED, CANCELED, BACKEND or OTHER. The message is for the caller and says what to do. The gRPC status is a name of
``grpc.StatusCode``, since nothing but the gRPC adapter knows gRPC.
"""

from __future__ import annotations

from typing import ClassVar


class ServingError(Exception):
    """Base of all errors that a caller gets to read.

    Args:
        message: What is wrong and what to do about it.
    """

    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    failure_reason: ClassVar[str] = "OTHER"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequestError(ServingError):
    """A field of the request is missing, malformed or does not fit the model."""

    http_status = 400
    grpc_status = "INVALID_ARGUMENT"


class UnauthenticatedError(ServingError):
    """Only operators may do this, and the caller did not send their token."""

    http_status = 401
    grpc_status = "UNAUTHENTICATED"


class NotAllowedError(ServingError):
    """The caller may not do this."""

    http_status = 403
    grpc_status = "PERMISSION_DENIED"


class NotFoundError(ServingError):
    """There is no such model, version or address."""

    http_status = 404
    grpc_status = "NOT_FOUND"


class MethodNotAllowedError(ServingError):
    """The address exists, but not for this HTTP method.

    Args:
        message: What is wrong and what to do about it.
        allowed: The method that fits.
    """

    http_status = 405
    grpc_status = "UNIMPLEMENTED"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class RequestTimeoutError(ServingError):
    """The request did not arrive in time."""

    http_status = 408
    grpc_status = "DEADLINE_EXCEEDED"


class ConflictError(ServingError):
    """What is there already must not be changed."""

    http_status = 409
    grpc_status = "ALREADY_EXISTS"


class LengthRequiredError(ServingError):
    """The request needs a body and has none."""

    http_status = 411
    grpc_status = "INVALID_ARGUMENT"


class TooLargeError(ServingError):
    """The request, its answer, or what the model needs in between, is over a size limit."""

    http_status = 413
    grpc_status = "RESOURCE_EXHAUSTED"


class UnsupportedEncodingError(ServingError):
    """The body is encoded in a way the server does not read."""

    http_status = 415
    grpc_status = "UNIMPLEMENTED"


class ExpectationFailedError(ServingError):
    """The request expects something the server does not do."""

    http_status = 417
    grpc_status = "UNIMPLEMENTED"


class MisdirectedError(ServingError):
    """The request is addressed to a name that is not this server's."""

    http_status = 421
    grpc_status = "UNIMPLEMENTED"


class ArtefactRefusedError(ServingError):
    """A model on disk is not fit to be served; what was live stays live."""

    http_status = 422
    grpc_status = "FAILED_PRECONDITION"


class HeadersTooLargeError(ServingError):
    """The HTTP headers are over the limit."""

    http_status = 431
    grpc_status = "RESOURCE_EXHAUSTED"


class InferenceFailedError(ServingError):
    """The model failed while it ran on well-formed inputs."""

    failure_reason = "BACKEND"


class NotImplementedHereError(ServingError):
    """HTTP has it, this server does not."""

    http_status = 501
    grpc_status = "UNIMPLEMENTED"


class NotReadyError(ServingError):
    """The model is still being loaded; trying again is safe."""

    http_status = 503
    grpc_status = "UNAVAILABLE"


class OverloadedError(ServingError):
    """A bounded queue is full; nothing was done, trying again later is safe."""

    http_status = 503
    grpc_status = "RESOURCE_EXHAUSTED"
    failure_reason = "REJECTED"


class DeadlineExceededError(ServingError):
    """The answer would come later than the caller or the server allows."""

    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"
    failure_reason = "REJECTED"


class StartupError(Exception):
    """The server cannot start; the message says what to do about it."""
