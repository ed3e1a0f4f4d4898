"""What agents and clients send piece by piece: a header first, then what it announces."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tiercel.core.errors import UnavailableError, wrong_field

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

# Of an agent that sends nothing more; it tries again.
SILENCE_SECONDS = 30.0
# For how long a client that was refused may go on sending, to be told why.
DROP_SECONDS = 5.0

_M = TypeVar("_M")


class Incoming(Generic[_M]):
    """The messages of one call.

    Args:
        remedy: What to do where nothing comes.
    """

    def __init__(self, read: Callable[[], Awaitable[object]], kind: type[_M], remedy: str) -> None:
        self._read = read
        self._kind = kind
        self._remedy = remedy

    async def header(self) -> Any:
        """The header that the first message is.

        Raises:
            InvalidSpecError: It is something else.
            UnavailableError: It did not come.
        """
        first: Any = await self.next()
        if first is None or not first.HasField("header"):
            raise wrong_field("header", "the first message must be one")
        return first.header

    async def next(self) -> _M | None:
        """The next message, or None after the last.

        Raises:
            UnavailableError: It did not come.
        """
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await self._read()
        except TimeoutError:
            raise UnavailableError(f"nothing came for {SILENCE_SECONDS:g} s; {self._remedy} again") from None
        return message if isinstance(message, self._kind) else None


async def drop(requests: AsyncIterator[object]) -> None:
    """Read what a client has on its way: gRPC tells it no reason if the call ends while it writes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DROP_SECONDS):
            async for _ in requests:
                pass
