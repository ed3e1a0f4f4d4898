"""Asks an endpoint at the addresses of several nodes, from a host of its own, for as long as :func:`asking` lasts.

What asks is a process on that host: ``python -m testing.asker CONFIGURATION`` writes a line of JSON on its standard
output for each request, with when it began and ended (monotonic seconds, the same for all processes of a machine).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from tiercel.broker.client.access import Access
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.options import ClientOptions
from tiercel.core.trust.names import node_name
from tiercel.core.trust.trust import Trust

if TYPE_CHECKING:
    from testing.lab import Lab

ASKERS = 4
"""At each address."""
PAUSE_SECONDS = 0.05
"""Of each of them, after an answer, where nobody asks for another."""
DEADLINE_SECONDS = 3.0
BODY = {"inputs": [{"name": "input", "shape": [1, 6], "datatype": "FP32", "data": [0.5, -1.0, 0.25, 1.0, -0.5, 2.0]}]}
TOLERANCE = 1e-4

Json = dict[str, Any]


class Answers:
    """What each version answers: the same wherever it is asked."""

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}

    def why_wrong(self, document: Any) -> str:
        """What is wrong with an answer; empty where nothing is."""
        try:
            version = str(document["model_version"])
            (output,) = document["outputs"]
            values = [float(value) for value in output["data"]]
        except (KeyError, TypeError, ValueError) as error:
            return f"it cannot be understood ({error!r})"
        known = self._known.setdefault(version, values)
        if len(values) != len(known) or any(abs(a - b) > TOLERANCE for a, b in zip(values, known, strict=True)):
            return f"version {version} answered {known} before and {values} now"
        return ""


@contextlib.asynccontextmanager
async def asking(
    lab: Lab, endpoint: str, lines: list[Json], askers: int = ASKERS, pause_seconds: float = PAUSE_SECONDS
) -> AsyncIterator[None]:
    """Ask at all nodes inside, from the user's host; what came out is in ``lines``.

    Args:
        lab: Where.
        endpoint: What is asked.
        lines: What came out is appended to it.
        askers: How many ask at each node.
        pause_seconds: Of each of them, after an answer.
    """
    nodes = (await lab.ask("nodes", "--json")).content
    configuration = {
        "broker": lab.address,
        "endpoint": endpoint,
        "askers": askers,
        "pause_seconds": pause_seconds,
        "addresses": {node["id"]: node["serving_http"] for node in nodes},
    }
    process = await asyncio.create_subprocess_exec(
        *lab.user.command(sys.executable, "-m", "testing.asker", json.dumps(configuration)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **lab.environment},
    )

    async def read() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            lines.append(json.loads(line))

    reading = asyncio.create_task(read())
    try:
        yield
        process.terminate()
        await reading
    finally:
        reading.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def wait_answered(lines: list[Json], nodes: int) -> None:
    """Wait until so many nodes have answered, and forget what was until then: routes may not have been told before."""
    async with asyncio.timeout(60):
        while len({line["node"] for line in lines if line["outcome"] == "answered"}) < nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    lines.clear()


async def _ask(session: aiohttp.ClientSession, url: str, answers: Answers, tls: Mapping[str, Any]) -> Json:
    """One request: ``outcome`` is answered, wrong or failed."""
    began = time.monotonic()
    try:
        async with session.post(url, json=BODY, **tls) as response:
            document = await response.json(content_type=None)
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        found: Json = {"outcome": "failed", "why": type(error).__name__}
    else:
        if status != 200:
            found = {"outcome": "failed", "why": f"{status}: {document}"[:200]}
        elif wrong := answers.why_wrong(document):
            found = {"outcome": "wrong", "why": wrong}
        else:
            found = {"outcome": "answered", "version": int(document["model_version"])}
    return {"began": began, "ended": time.monotonic(), **found}


async def _ask_at(node: str, url: str, configuration: Json, answers: Answers, access: Access) -> None:
    """Ask at one address for ever."""
    endpoint, pause_seconds = configuration["endpoint"], configuration["pause_seconds"]
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        tls = {"ssl": await access.context(), "server_hostname": node_name(node)}
        while True:
            line = await _ask(session, f"{url}/v2/models/{endpoint}/infer", answers, tls)
            sys.stdout.write(json.dumps({"node": node, **line}) + "\n")
            sys.stdout.flush()
            await asyncio.sleep(pause_seconds)


async def _main(configuration: Json) -> None:
    """Ask at all addresses until SIGTERM."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    trust = Trust.from_environment(os.environ)
    connection = await Connection.open(configuration["broker"], os.environ["TIERCEL_TOKEN"], ClientOptions(), trust)
    access, answers = Access(connection), Answers()
    await access.context()  # before the broker's machine may be cut off
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_ask_at(node, url, configuration, answers, access), name=node)
            for node, url in configuration["addresses"].items()
            for _ in range(configuration["askers"])
        ]
        await stopped.wait()
        for task in tasks:
            task.cancel()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
