"""The application, seen by whoever starts it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testing.load_record import LoadRecord

READY_SECONDS = 120.0
STOP_SECONDS = 30.0

News = Callable[[Mapping[str, Any]], None]


class ApplicationError(Exception):
    """The application failed; the message says where its log is."""


class ApplicationProcess:
    """A running ``testing.application``; an async context manager. Inside, it is ready and waits for versions.

    Args:
        server: Where the inference server answers over HTTP, ``host:port``.
        endpoints: Endpoints with the kind of their test images.
        rate: Requests a second in total.
        folder: Where its record and its log go.
    """

    def __init__(self, server: str, endpoints: Sequence[tuple[str, str]], rate: float, folder: Path) -> None:
        self._record = folder / "requests.json"
        self._log = folder / "application.log"
        named = [argument for name, kind in endpoints for argument in ("--endpoint", f"{name}={kind}")]
        output = ["--output", str(self._record)]
        self._command = ["-m", "testing.application", "--server", server, "--rate", str(rate), *output, *named]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._record.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # The folder above this package, so that it is found from wherever the demo was started.
                cwd=Path(__file__).parent.parent,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._next_news()
        except BaseException:
            await self._kill()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._kill()

    async def follow(self, news: News) -> None:
        """Pass on what the application tells, until cancelled.

        Raises:
            ApplicationError: It ended.
        """
        while True:
            news(await self._next_news())

    async def stop(self) -> LoadRecord:
        """Ask it to stop, wait for its last answers, and read what it recorded. Nobody may follow it any more.

        Raises:
            ApplicationError: It failed, or took too long.
        """
        process = self._started()
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.communicate()
        except TimeoutError:
            message = f"The application did not stop within {STOP_SECONDS:.0f} s; its log is {self._log}"
            raise ApplicationError(message) from None
        if process.returncode != 0:
            raise ApplicationError(f"The application failed (exit code {process.returncode}); its log is {self._log}")
        return await asyncio.to_thread(LoadRecord.read, self._record)

    async def _next_news(self) -> Mapping[str, Any]:
        stdout = self._started().stdout
        line = await stdout.readline() if stdout is not None else b""
        if not line:
            raise ApplicationError(f"The application ended early; its log is {self._log}")
        news: Mapping[str, Any] = json.loads(line)
        return news

    async def _kill(self) -> None:
        process = self._started()
        if process.returncode is None:
            process.kill()
        # Reads what is left in the pipes, so that they can be closed.
        await process.communicate()

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ApplicationError("The application was not started")
        return self._process
