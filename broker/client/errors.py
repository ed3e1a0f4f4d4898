"""From gRPC's errors to the tree in ``core/errors.py``; the code that the broker sends decides."""

from __future__ import annotations

import grpc

from tiercel.core.errors import (
    CODE_KEY,
    ERRORS,
    FIELD_KEY,
    IllegalTransitionError,
    InvalidSpecError,
    NotAuthenticatedError,
    NotFoundError,
    OverloadedError,
    TiercelError,
    UnavailableError,
)

# What something between us and the broker may answer without our code.
_BY_STATUS: dict[grpc.StatusCode, type[TiercelError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidSpecError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAUTHENTICATED: NotAuthenticatedError,
}


# What gRPC itself says of a request beyond the broker's limit, before the broker sees it.
_TOO_LARGE = "larger than max"


def from_rpc_error(error: grpc.aio.AioRpcError, address: str) -> TiercelError:
    """The error to raise in place of ``error``.

    Args:
        error: What gRPC raised.
        address: The broker's address, for the sentence.
    """
    metadata = {key: _text(value) for key, value in error.trailing_metadata() or ()}
    code = metadata.get(CODE_KEY, "")
    details = error.details() or ""
    status = error.code()
    if code == IllegalTransitionError.code or status is grpc.StatusCode.INTERNAL:
        return TiercelError(f"The broker at {address} has a defect: {details or 'it did not say which'}")
    if (known := ERRORS.get(code)) is not None:
        return known(details, field=metadata.get(FIELD_KEY, ""))
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return InvalidSpecError(
            f"The request is larger than the broker takes ({details}); put what is large into an image or a module."
        )
    # A server that goes cancels its streams.
    if status in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
        return UnavailableError(
            f"The broker at {address} does not answer; start it with 'tiercel up', or give another address."
        )
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnavailableError(f"The broker at {address} did not answer in time; try again, or look at its log.")
    return _BY_STATUS.get(status, TiercelError)(details or f"The broker at {address} refused the call ({status.name}).")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
