"""Follows a container's output through the engine, across broken connections.

aiodocker's own log iterator decodes text and fails on bytes that are none, so the frames are read here.
"""

from __future__ import annotations

import asyncio
import calendar
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp
from aiodocker import Docker, DockerError

from tiercel.trainer_agent.runtimes.containers.config import LOG_FILE_BYTES
from tiercel.trainer_agent.runtimes.containers.waiting import LEFT_OUT
from tiercel.trainer_agent.runtimes.contract import Output
from tiercel.trainer_agent.runtimes.warm.script import ENTERED

_log = logging.getLogger(__name__)

_HEADER_BYTES: Final = 8
_STANDARD_OUTPUT: Final = 1
_STREAMS: Final = frozenset({1, 2})
_BEGIN_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
_STREAM: Final = aiohttp.ClientTimeout(total=None, sock_connect=10)  # a silent script is no reason to hang up
_SILENT_SECONDS: Final = 30.0
_TIMESTAMP: Final = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{9})Z ")


class ContainerLog:
    """The output of one container, from its beginning or from a position on.

    Args:
        docker: The engine.
        container_id: The container.
        is_running: Whether it still runs; the output of one that does not is read to its end once more.
        position: Of the last output that was had before; empty for none.
        waited: Whether the container waited for its run, which has not written what comes first.
    """

    def __init__(
        self,
        docker: Docker,
        container_id: str,
        is_running: Callable[[], Awaitable[bool]],
        position: str = "",
        *,
        waited: bool = False,
    ) -> None:
        self._docker = docker
        self._path = f"containers/{container_id}/logs"
        self._is_running = is_running
        self._since = position or "0"
        self._unentered = set(_STREAMS) if waited and not position else set()

    async def chunks(self) -> AsyncIterator[Output]:
        """Standard output and error in the order in which they came, until the container has ended."""
        running = True
        while running:
            running = await self._is_running()
            try:
                async with contextlib.aclosing(self._frames(follow=running)) as frames:
                    async for stream, frame in frames:
                        data = self._without_timestamp(frame)
                        if stream in self._unentered:
                            self._unentered -= {stream} if data == ENTERED else set()
                        elif data:
                            yield Output(data, self._since)
            except (DockerError, aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, DockerError) and error.status == 404:
                    return
                _log.info("the output of a container broke off and is taken up again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def has_begun(self) -> bool:
        """Whether a container that waited has become its run; while it may yet do so, that is waited for.

        Raises:
            DockerError: The engine does not say.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                while True:
                    running = await self._is_running()
                    if await self._look_for_begin():
                        return True
                    if not running:
                        return False
                    await asyncio.sleep(_RETRY_SECONDS)
        return False

    async def _look_for_begin(self) -> bool:
        async with contextlib.aclosing(self._frames(follow=False)) as frames:
            async for stream, frame in frames:
                data = self._without_timestamp(frame)
                if data != ENTERED:
                    # What it said while it waited comes first. Without that, it has written more than is kept.
                    if stream != _STANDARD_OUTPUT or not data.startswith(LEFT_OUT):
                        return True
                elif stream == _STANDARD_OUTPUT:
                    return True
        return False

    async def _frames(self, *, follow: bool) -> AsyncGenerator[tuple[int, bytes]]:
        params = {"stdout": "1", "stderr": "1", "follow": str(int(follow)), "timestamps": "1", "since": self._since}
        query = self._docker._query(self._path, params=params, timeout=_STREAM)  # noqa: SLF001 - see module
        had_bytes = 0
        async with query as response, response:  # the query's own context leaves the connection open
            while True:
                # An engine that is behind when it begins another file may say nothing more of either. Only then it is
                # asked again: pieces of one long line have one time, and those behind it would be left out.
                may_be_stuck = follow and had_bytes >= LOG_FILE_BYTES
                try:
                    async with asyncio.timeout(_SILENT_SECONDS if may_be_stuck else None):
                        header = await response.content.readexactly(_HEADER_BYTES)
                    frame = await response.content.readexactly(int.from_bytes(header[4:], "big"))
                except (TimeoutError, asyncio.IncompleteReadError):
                    return
                had_bytes += len(frame)
                yield header[0], frame

    def _without_timestamp(self, frame: bytes) -> bytes:
        match = _TIMESTAMP.match(frame)
        if match is None:
            return frame
        *date, nanoseconds = (int(group) for group in match.groups())
        behind = calendar.timegm((*date, 0, 0, 0)) * 10**9 + nanoseconds + 1
        # Output and errors are logged apart from each other: what is logged later may be from before.
        self._since = max(self._since, f"{behind // 10**9}.{behind % 10**9:09d}", key=_nanoseconds)
        return frame[match.end() :]


def _nanoseconds(position: str) -> int:
    seconds, _, rest = position.partition(".")
    return int(seconds) * 10**9 + int(rest or 0)
