"""The whole product in a temporary state directory, and its users: the command line, jobs to submit, what it left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp

from testing.hosts import Host
from testing.product import Begun, Product, tiercel_command
from testing.until import until
from testing.warm_python import WarmProcess, lasting_python, without_tiercels
from tiercel import Client, Direction, JobSpec, Resources, Script, Tier

COMMAND_SECONDS = 90.0
JOB_SECONDS = 100.0
"""Generous deadlines: they only decide how long a broken test takes."""

SCRIPTS = Path(__file__).parent / "scripts"
# What a command has imported once it has asked the broker.
COMMAND_LINE = (
    "grpc.aio",
    "tiercel.broker.cli.app",
    "tiercel.broker.cli.jobs",
    "tiercel.broker.client.client",
    "tiercel.broker.client.spec_file",
)
UP = ("tiercel.broker.cli.app", "tiercel.broker.cli.up.run", "tiercel.broker.server")


@dataclass(frozen=True, slots=True)
class Command:
    """What a command of ``tiercel`` did."""

    exit_code: int
    output: str
    errors: str

    @property
    def content(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.output)


class WarmUp:
    """A process that begins with what ``tiercel up`` always imports; see :class:`testing.product.Begun`."""

    def __init__(self, process: WarmProcess) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, signal: int, /) -> None:
        self._process.send_signal(signal)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        await until(lambda: self._process.poll() is not None)
        return self._process.wait()


class WarmProduct(Product):
    """A product whose ``tiercel up``, like a command, is no new Python: half of what its start costs.

    It is not among what :meth:`left_over` finds, since it has the command line of what it was forked from.
    """

    async def _begin(self, command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> Begun:
        return await asyncio.to_thread(_fork_up, command, environment, log)


def _fork_up(command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> WarmUp:
    with Path(os.devnull).open("rb") as nothing:
        return WarmUp(lasting_python(UP).start_with(command, environment, (nothing, log, log), None))


@contextlib.asynccontextmanager
async def running_product(
    folder: Path, *options: str, host: Host | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Product]:
    """``tiercel up`` with two tenants, ready; whatever of it is left at the end is killed."""
    options = ("--runtime", "process", "--tenant", "alice", "--tenant", "bob", *options)
    kind = WarmProduct if host is None else Product  # a host's first process imports all of it, whoever it is
    async with kind(folder / "state", folder / "up.log", options, environment, host) as product:
        yield product


async def tiercel(
    *arguments: str,
    state_dir: Path,
    tenant: str = "",
    text: str | None = None,
    host: Host | None = None,
    environment: Mapping[str, str] | None = None,
) -> Command:
    """Run a command of ``tiercel`` to its end.

    Args:
        arguments: The command and its options.
        state_dir: Which product is meant.
        tenant: On whose behalf.
        text: What it reads from its standard input.
        host: Where it runs; this machine when left out.
        environment: Variables that it gets; others of Tiercel's it does not.
    """
    who = ("--tenant", tenant) if tenant else ()
    command = tiercel_command(*arguments, "--state-dir", str(state_dir), *who)
    # What 'up' starts is to be known by its name.
    if arguments[0] != "up" and (host is not None or environment is None):
        return await _run_warm(command, text or "", host, environment or {})
    process = await asyncio.create_subprocess_exec(
        *(command if host is None else host.command(*command)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=without_tiercels() | dict(environment or {}),
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, errors = await process.communicate((text or "").encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Command(process.returncode or 0, output.decode(), errors.decode())


async def _run_warm(command: list[str], text: str, host: Host | None, environment: Mapping[str, str]) -> Command:
    """In a process that begins with what the command line always imports: most of a command's time."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(text.encode())
        given.seek(0)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - the process closes it
        template = lasting_python(COMMAND_LINE, host=host)
        process = template.start_with(command, without_tiercels() | dict(environment), (given, output, errors), output)
        try:
            told, _ = await asyncio.to_thread(process.communicate, COMMAND_SECONDS)
        finally:
            process.kill()
        errors.seek(0)
        return Command(process.returncode or 0, told, errors.read().decode())


def client_of(product: Product, tenant: str = "alice") -> Client:
    """An SDK client; to be entered."""
    return Client.from_state_dir(product.state_dir, tenant)


def digits_job(endpoint: str = "digits", targets: tuple[float, ...] = (0.70, 0.90), **changes: Any) -> JobSpec:
    """A perceptron on scikit-learn's digits, which learns in seconds."""
    fields: dict[str, Any] = {
        "name": endpoint,
        "endpoint": endpoint,
        "metric": "accuracy",
        "direction": Direction.MAX,
        "tiers": tuple(Tier(target) for target in targets),
        "script": Script("digits.py", (SCRIPTS / "digits.py").read_bytes()),
        "resources": Resources(cpu_cores=1.0, memory_bytes=1024**3),
    }
    return JobSpec(**(fields | changes))


def faulty_job(fault: str, endpoint: str, target: float, **changes: Any) -> JobSpec:
    """A job whose script goes wrong in a way of ``testing/scripts/numpy_linear.py``."""
    script = Script("numpy_linear.py", (SCRIPTS / "numpy_linear.py").read_bytes())
    fields: dict[str, Any] = {"name": fault, "script": script, "arguments": ("--fault", fault)}
    return digits_job(endpoint, (target,), **(fields | changes))


def read_pid(lock: Path) -> int:
    """The process that holds a lock file."""
    return int(lock.read_text().split()[0])


async def serving_index(product: Product) -> dict[tuple[str, str], str]:
    """State of each version that the inference server knows, by model and version."""
    url = f"http://{product.addresses['serving_http']}/v2/repository/index"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as response:
        assert response.status == 200
        return {(line["name"], line["version"]): line["state"] for line in await response.json()}


async def get_json(url: str) -> tuple[int, Any]:
    """Get JSON; returns the status and the answer."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.json(content_type=None)


async def post_json(url: str, body: object) -> tuple[int, Any]:
    """Post JSON; returns the status and the answer."""
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return response.status, await response.json(content_type=None)


def files_with(secret: str, folder: Path) -> list[str]:
    """Files in which the secret stands."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in found if secret.encode() in path.read_bytes()]
