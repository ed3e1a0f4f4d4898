"""Runs of any runtime, as tests start, read and finish them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from testing.until import until
from tiercel.trainer_agent.runtimes.contract import RunHandle

Start = Callable[..., "asyncio.Future[RunHandle]"]


async def read(run: RunHandle) -> bytes:
    """All output of a run."""
    async with aclosing(run.output()) as output:  # type: ignore[type-var]  # both are generators
        return b"".join([chunk.data async for chunk in output])


async def finish_bytes(run: RunHandle) -> tuple[int, bytes]:
    """Exit code and output of a run that ends by itself."""
    async with asyncio.timeout(60):
        output, how = await asyncio.gather(read(run), run.wait())
    await run.close()
    return how.code, output


async def finish(run: RunHandle) -> tuple[int, str]:
    """The same, where the output is text."""
    code, output = await finish_bytes(run)
    return code, output.decode()


async def ready(run: RunHandle) -> tuple[list[bytes], asyncio.Task[None]]:
    lines: list[bytes] = []

    async def pump() -> None:
        async for chunk in run.output():
            lines.append(chunk.data)  # noqa: PERF401 - a comprehension would show nothing before the end

    reading = asyncio.create_task(pump())
    await until(lambda: b"ready" in b"".join(lines))
    return lines, reading


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
