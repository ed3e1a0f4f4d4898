"""From gRPC's errors to the tree in ``core/errors.py``; the code that the broker sends decides."""

from __future__ import annotations

from datetime import UTC, datetime

import grpc
from google.protobuf.message import DecodeError

from tiercel.core.errors import (
    CODE_KEY,
    ERRORS,
    FIELD_KEY,
    IllegalTransitionError,
    InvalidSpecError,
    NotAuthenticatedError,
    NotFoundError,
    OverloadedError,
    RateExceededError,
    TiercelError,
    UnavailableError,
)
from tiercel.core.trust.disbelief import clock_words, is_unvouched
from tiercel.core.trust.trust import AUTHORITY_VARIABLE, PIN_VARIABLE
from tiercel.v1 import RETRY_KEY, RETRY_TYPE, refusals_pb2

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
    if code == RateExceededError.code:
        return RateExceededError(details, seconds=_seconds_until_again(error))
    if (known := ERRORS.get(code)) is not None:
        return known(details, field=metadata.get(FIELD_KEY, ""))
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return InvalidSpecError(
            f"The request is larger than the broker takes ({details}); put what is large into an image or a module."
        )
    if wrong := clock_words(details, datetime.now(UTC)):
        return UnavailableError(f"The certificate of the broker at {address} {wrong}, or whether it was renewed.")
    if is_unvouched(details):
        return UnavailableError(
            f"Whoever answers at {address} is not vouched for by the authority that this client was told to believe "
            f"({AUTHORITY_VARIABLE}, {PIN_VARIABLE}): it is another broker, somebody stands between, or the authority "
            "was rotated; nothing was sent. Ask the broker's operator for the address and authority.pem."
        )
    # A server that goes cancels its streams.
    if status in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
        return UnavailableError(
            f"The broker at {address} does not answer; start it with 'tiercel up', or give another address."
        )
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnavailableError(f"The broker at {address} did not answer in time; try again, or look at its log.")
    return _BY_STATUS.get(status, TiercelError)(details or f"The broker at {address} refused the call ({status.name}).")


def _seconds_until_again(error: grpc.aio.AioRpcError) -> float:
    """After how long a call may be let through, as it was told; a second if it was not."""
    told = dict(error.trailing_metadata() or ()).get(RETRY_KEY, b"")
    try:
        status = refusals_pb2.RefusalStatus.FromString(told if isinstance(told, bytes) else b"")
        found = [each.value for each in status.details if each.type_url == RETRY_TYPE]
        delay = refusals_pb2.RetryInfo.FromString(found[0]).retry_delay if found else None
    except DecodeError:
        delay = None
    return 1.0 if delay is None else max(0.0, delay.seconds + delay.nanos / 1e9)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
