"""The one place where errors become gRPC statuses; the gate uses it for tenants, ``nodes.py`` for calls of agents."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import TYPE_CHECKING

import grpc

from tiercel.core.errors import CODE_KEY, FIELD_KEY, QuotaExceededError, RateExceededError, TiercelError
from tiercel.v1 import RETRY_KEY, RETRY_TYPE, refusals_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

# Details travel in a header, and headers are short; what a user sent may be quoted in them.
MAX_DETAILS_CHARACTERS = 1_000


@contextlib.asynccontextmanager
async def translated_errors(context: grpc.aio.ServicerContext[object, object]) -> AsyncIterator[None]:
    """End the call with the right status when what is inside raises.

    Users read the messages of :class:`TiercelError`; anything else is a defect, goes to the log, and is only named.
    """
    try:
        yield
    except TiercelError as error:
        status = grpc.StatusCode[error.grpc_status]
        if status is grpc.StatusCode.INTERNAL:
            logger.exception("a call failed")
        trailing: tuple[tuple[str, str | bytes], ...] = (
            (CODE_KEY, error.code),
            (FIELD_KEY, error.field),
            *_when_again(error, status),
        )
        await context.abort(status, _shortened(error.message), trailing)
    except (grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError):
        raise  # the last: whoever called is gone, which grpc deals with; a second abort would be one too many
    except Exception as error:
        logger.exception("a call failed on a defect of the broker")
        message = f"the broker failed on a defect of its own ({type(error).__name__}); its log has the details"
        await context.abort(grpc.StatusCode.INTERNAL, message, ((CODE_KEY, "internal"), (FIELD_KEY, "")))


def _when_again(error: TiercelError, status: grpc.StatusCode) -> tuple[tuple[str, bytes], ...]:
    """Where a call may be let through later: after how long, as standard clients understand it."""
    if not isinstance(error, QuotaExceededError | RateExceededError):
        return ()
    info = refusals_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(max(1, math.ceil(error.seconds * 1000)))
    told = refusals_pb2.RefusalStatus(code=status.value[0], message=_shortened(error.message))
    told.details.add(type_url=RETRY_TYPE, value=info.SerializeToString())
    return ((RETRY_KEY, told.SerializeToString()),)


def _shortened(message: str) -> str:
    if len(message) <= MAX_DETAILS_CHARACTERS:
        return message
    half = MAX_DETAILS_CHARACTERS // 2
    return f"{message[:half]} … {message[-half:]}"
