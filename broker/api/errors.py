"""The one place where errors become gRPC statuses; the gate uses it for tenants, ``nodes.py`` for calls of agents."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import grpc

from tiercel.core.errors import CODE_KEY, FIELD_KEY, TiercelError

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
        trailing = ((CODE_KEY, error.code), (FIELD_KEY, error.field))
        await context.abort(status, _shortened(error.message), trailing)
    except (grpc.aio.AbortError, grpc.aio.UsageError):
        raise
    except Exception as error:
        logger.exception("a call failed on a defect of the broker")
        message = f"the broker failed on a defect of its own ({type(error).__name__}); its log has the details"
        await context.abort(grpc.StatusCode.INTERNAL, message, ((CODE_KEY, "internal"), (FIELD_KEY, "")))


def _shortened(message: str) -> str:
    if len(message) <= MAX_DETAILS_CHARACTERS:
        return message
    half = MAX_DETAILS_CHARACTERS // 2
    return f"{message[:half]} … {message[-half:]}"
