"""The agent's side of a fetch: starts the program, hears how far it is, and ends it where it says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tiercel.trainer_agent.data.fetch import GO
from tiercel.trainer_agent.data.transfer import FetchError, Found

_TICK_SECONDS: Final = 0.5
_MAX_WORDS: Final = 500
_MAX_LINE_BYTES: Final = 64 * 1024
_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONPATH")
"""Variables that a fetch without the operator's trust gets: no credentials, and no way to any."""
_SET: Final = {
    "AWS_EC2_METADATA_DISABLED": "true",  # the cloud's metadata has credentials
    "NO_GCE_CHECK": "true",
    # These two connect by themselves, past what holds a fetch to the internet; gcsfs then asks by gRPC what kind of
    # bucket it is, and waits for a minute where nothing gets through but https.
    "HF_HUB_DISABLE_XET": "1",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a fetch may take."""

    silence_seconds: float = 60.0  # without any progress
    deadline_seconds: float = 6 * 3600.0  # in all
    memory_bytes: int = 1024**3  # for itself; a listing takes most of it


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched."""

    sha256: str  # of it
    size: int  # in bytes
    files: int  # how many


class Fetch:
    """A fetch that is under way. Made by :func:`fetching`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        orders: asyncio.StreamWriter,
        news: asyncio.StreamReader,
        limits: FetchLimits,
        check: Callable[[], None],
    ) -> None:
        self._process = process
        self._orders = orders
        self._news = news
        self._limits = limits
        self._check = check
        self._ends_at = time.monotonic() + limits.deadline_seconds

    async def order(self, **order: object) -> Found:
        """Say what to fetch; returns what there is.

        Raises:
            FetchError: There is nothing, or nobody says.
        """
        await self._write(json.dumps(order))
        found = (await self._next())["found"]
        return Found(str(found["version"]), int(found["size"]), str(found["name"]))

    async def copy(self, grew: Callable[[int], Awaitable[None]]) -> Fetched:
        """Have it copied.

        Args:
            grew: Is told of every byte so far; what it raises ends the fetch.

        Raises:
            FetchError: It did not come.
        """
        await self._write(GO)
        while True:
            message = await self._next()
            if "done" in message:
                return Fetched(**message["done"])
            await grew(int(message["bytes"]))

    async def _write(self, line: str) -> None:
        with contextlib.suppress(ConnectionError):  # what it says last tells more
            self._orders.write(f"{line}\n".encode())
            await self._orders.drain()

    async def _next(self) -> dict[str, Any]:
        line: bytes | None = None
        try:
            line = await self._line()
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            code = await self._process.wait() if line == b"" else "it says what cannot be"
            raise FetchError(f"what fetches it ended by itself ({code})", again=True) from None
        if "failed" in message:
            raise FetchError(_printable(str(message["failed"])), again=bool(message["again"]))
        return message

    async def _line(self) -> bytes:
        silent_at = time.monotonic() + self._limits.silence_seconds
        while True:
            self._check()
            if time.monotonic() > self._ends_at:
                raise FetchError(f"it did not come within {self._limits.deadline_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    return await self._news.readline()
            if time.monotonic() > silent_at:
                raise FetchError(f"nothing came of it for {self._limits.silence_seconds:g} s", again=True)


def _printable(text: str) -> str:
    """Words that a server may have chosen, as people can read them."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:_MAX_WORDS])


@asynccontextmanager
async def fetching(
    folder: Path, limits: FetchLimits, check: Callable[[], None], *, is_trusted: bool
) -> AsyncIterator[Fetch]:
    """A fetch, for as long as the block lasts; it is ended then at the latest.

    Args:
        folder: Where it may keep what its libraries want to keep.
        limits: How long it may take.
        check: Called all the time; what it raises ends the fetch.
        is_trusted: Whether it gets the agent's environment, with all that opens.
    """
    environment = {name: value for name, value in os.environ.items() if is_trusted or name in _INHERITED}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "tiercel.trainer_agent.data.fetch"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
        cwd=folder,
        env={**_SET, **environment} if is_trusted else environment | {"HOME": str(folder), **_SET},
    )
    try:
        if process.stdin is not None and process.stdout is not None:  # as was asked for
            yield Fetch(process, process.stdin, process.stdout, limits, check)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
