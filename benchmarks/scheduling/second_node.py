"""A second node on the same machine: another agent beside that of ``tiercel up``, each with processors of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testing.product import STOP_SECONDS, Product, ProductError
from tiercel import Client

FOLDER_NAME = "agent-second"
"""Its state directory within that of the product, so that whoever looks for what is left over finds it."""

ONLINE_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def processors() -> tuple[str, str]:
    """The machine's processors for the first and the second node, as the agent's setting ``cpus`` wants them.

    Raises:
        ProductError: There is one only.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise ProductError("two nodes on one machine need two processors; there is one")
    half = len(usable) // 2
    first, second = (",".join(map(str, part)) for part in (usable[:half], usable[half:]))
    return first, second


class SecondNode:
    """A running agent; an async context manager. Leaving stops it and what it runs."""

    def __init__(self, product: Product, environment: Mapping[str, str]) -> None:
        self._product = product
        self._environment = {**environment, "TIERCEL_AGENT_CPUS": processors()[1]}
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        folder = self._product.state_dir
        arguments = {
            "addresses-file": folder / "addresses.json",
            "state-dir": folder / FOLDER_NAME,
            "token-file": folder / "node.token",
            "node-id": "second",
            "runtimes": "process",
        }
        options = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        with self._product.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tiercel.trainer_agent", *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            # What it ran is found by the product's own look for what is left over.
            process.kill()
            await process.wait()


async def wait_nodes(client: Client, count: int, log: Path) -> None:
    """Wait until so many nodes are online.

    Raises:
        ProductError: It takes too long.
    """
    try:
        async with asyncio.timeout(ONLINE_SECONDS):
            while True:
                nodes = await client.list_nodes()
                if sum(node.online for node in nodes) >= count:
                    return
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        message = f"{count} nodes were not online within {ONLINE_SECONDS:.0f} s; the log is {log}"
        raise ProductError(message) from None
