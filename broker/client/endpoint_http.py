"""Requests to inference servers over HTTP, and what is told of those that fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

from tiercel.core.current_span import trace_context
from tiercel.core.endpoint_access import KEY_VARIABLE
from tiercel.core.errors import (
    InvalidSpecError,
    NotAuthenticatedError,
    NotFoundError,
    RateExceededError,
    TiercelError,
    TooLargeError,
    UnavailableError,
)
from tiercel.core.jsonable import Json
from tiercel.core.trust.disbelief import alert_words, clock_words
from tiercel.core.trust.trust import AUTHORITY_VARIABLE, PIN_VARIABLE

if TYPE_CHECKING:
    from tiercel.broker.client.places import Place, Places

MAX_ANSWER_BYTES = 256 * 1024**2
"""The largest answer of an inference server that is read."""
_EVENT: Final = b"data: "
# A machine that is away does not even refuse, and another replica may answer.
_CONNECT_SECONDS: Final = 5.0


class EndpointHttp:
    """Sends requests to places.

    Args:
        places: Knows whom to believe there.
    """

    def __init__(self, places: Places) -> None:
        self._knows = places
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()

    async def request(
        self, method: str, url: str | URL, place: Place, key: str, deadline_seconds: float, body: Json | None = None
    ) -> Any:
        """Ask, and return the JSON of the answer.

        Raises:
            TiercelError: Nobody answers, or refuses; with a sentence.
        """
        async with self._answer(method, url, place, key, deadline_seconds, body) as response:
            return json.loads(await _read(response))

    async def events(
        self, url: str, place: Place, key: str, deadline_seconds: float, body: Json
    ) -> AsyncGenerator[Any]:
        """Ask for server-sent events, and yield the JSON of each as it comes.

        Raises:
            TiercelError: As :meth:`request`.
        """
        async with self._answer("POST", url, place, key, deadline_seconds, body) as response:
            read = 0
            async for line in response.content:
                read = _checked(response, read + len(line))
                if line.startswith(_EVENT):
                    yield json.loads(line[len(_EVENT) :])

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str | URL, place: Place, key: str, deadline_seconds: float, body: Json | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        encryption = await self._knows.encryption(place, has_key=bool(key))
        headers = ({"Authorization": f"Bearer {key}"} if key else {}) | trace_context()
        timeout = aiohttp.ClientTimeout(total=deadline_seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, allow_redirects=False, timeout=timeout, **encryption
            ) as response:
                if response.status != 200:
                    raise _refusal(response.status, json.loads(await _read(response)))
                yield response
        except aiohttp.ClientSSLError as error:
            self._knows.forget_trust()
            if wrong := clock_words(str(error), datetime.now(UTC)):
                raise UnavailableError(f"The certificate of the inference server at {url} {wrong}.") from error
            message = (
                f"Whoever answers at {url} is not to be believed ({error}); check the address, and for a node set "
                f"{PIN_VARIABLE} or {AUTHORITY_VARIABLE} as for its broker."
            )
            raise UnavailableError(message) from error
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, ValueError, RecursionError) as error:
            if isinstance(error, aiohttp.ClientConnectionError):  # who is refused by TLS 1.3 is often told no more
                self._knows.forget_trust()
            why = alert_words(str(error)) or str(error) or "it took too long"
            raise UnavailableError(f"The inference server does not answer at {url} ({why}); try again.") from error


@contextlib.contextmanager
def understood(url: str) -> Iterator[None]:
    """What answers without being an inference server is told as that."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnavailableError(
            f"What answers at {url} is no inference server of Tiercel; check the address."
        ) from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole answer, unless it has no end."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        _checked(response, len(body))
    return bytes(body)


def _checked(response: aiohttp.ClientResponse, size: int) -> int:
    if size > MAX_ANSWER_BYTES:
        raise TooLargeError(f"The answer of {response.url} is over {MAX_ANSWER_BYTES} bytes; ask for less at once.")
    return size


def _refusal(status: int, answer: Any) -> TiercelError:
    why = str(answer.get("error", answer)) if isinstance(answer, dict) else str(answer)
    if status == 401:
        return NotAuthenticatedError(f"{why}. Give the key in the variable {KEY_VARIABLE}, or by --key -.")
    if status == 429:
        return RateExceededError(why)
    if status == 404:
        return NotFoundError(why, field="endpoint")
    if 400 <= status < 500:
        return InvalidSpecError(why, field="inputs")
    return UnavailableError(why)
