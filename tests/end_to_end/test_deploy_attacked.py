"""Files that are deployed while agent, broker or client die in the middle.

Somebody asks the endpoint all the time: every answer is one of a whole version, none fails, and nothing is left of what
broke off. The same command then succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import numpy as np
import onnx
import pytest

from testing import onnx_models
from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, read_pid
from testing.until import until
from tiercel import Client, InvalidSpecError, JobState, Script, UnavailableError
from tiercel.broker.client import VersionInfo
from tiercel.core.checkpoints import Artefact
from tiercel.core.deploying import Deploy
from tiercel.core.wire import to_proto
from tiercel.v1 import models_pb2, models_pb2_grpc

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(400)]
in_one_loop = pytest.mark.asyncio(loop_scope="module")

NAME = "plus"
# So many pieces that something can happen between them.
PADDING_BYTES = 4 * 1024**2
SECONDS = 60.0
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}]}
DELIVERS = """
import numpy as np

import tiercel.trainer
from testing import onnx_models

job = tiercel.trainer.connect()
rows = np.zeros((3, 4), np.float32)
for value in (301.0, 302.0):
    job.deliver(onnx_models.plus(value), metrics={"accuracy": value / 303.0}, inputs=rows, outputs=rows + value)
"""


@dataclass
class Asking:
    """Somebody who asks an endpoint all the time."""

    url: str
    values: dict[str, set[float]] = field(default_factory=dict)  # what each version answered
    failed: list[str] = field(default_factory=list)

    async def ask(self) -> None:
        """Ask until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.post(self.url, json=REQUEST) as response:
                    told = await response.json(content_type=None)
                if response.status == 200:
                    self.values.setdefault(told["model_version"], set()).add(told["outputs"][0]["data"][0])
                else:
                    self.failed.append(str(told))
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def asked(product: Product) -> AsyncIterator[Asking]:
    """An endpoint that is asked meanwhile: no request fails, and each version always gave the same."""
    asking = Asking(f"http://{product.addresses['serving_http']}/v2/models/{NAME}/infer")
    task = asyncio.create_task(asking.ask())
    try:
        yield asking
        before = sum(map(len, asking.values.values()))
        await until(lambda: task.done() or before > 0 or bool(asking.values))
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled(), task
    assert asking.failed == []
    assert all(len(values) == 1 for values in asking.values.values()), asking.values


def padded(folder: Path, value: float) -> Path:
    """A file whose model answers ``x + value``, and that is large."""
    path = folder / f"{value:g}.onnx"
    padding = np.random.default_rng(0).standard_normal(PADDING_BYTES // 4).astype(np.float32)
    model = onnx.load_from_string(onnx_models.plus(value))
    model.graph.initializer.append(onnx.numpy_helper.from_array(padding, "padding"))
    path.write_bytes(model.SerializeToString())
    return path


def halfway(act: Callable[[], None]) -> Callable[[int, int], None]:
    """Do something once, when half of a file is sent."""
    done: list[int] = []

    def progress(sent: int, total: int) -> None:
        if sent >= total // 2 and not done:
            done.append(sent)
            act()

    return progress


@contextlib.contextmanager
def held_serving(product: Product) -> Iterator[None]:
    """The inference server stands still: what it shall load waits."""
    pid = read_pid(product.state_dir / "agent" / "serving.lock")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # whoever looks after it gave it up
            os.kill(pid, signal.SIGCONT)


def kill_agent(product: Product) -> None:
    """End the agent at once; it is started again."""
    os.kill(read_pid(product.state_dir / "agent" / "agent.lock"), signal.SIGKILL)


async def is_there(product: Product, path: Path) -> None:
    """Wait until the node has the file whole, and its server shall load it."""
    folder, content = product.state_dir / "agent" / "models", path.read_bytes()

    def found() -> bool:
        places = (*folder.glob(".staging/*/model.onnx"), *folder.glob(f"{NAME}/*/model.onnx"))
        with contextlib.suppress(FileNotFoundError):  # it goes from one place to the other
            return any(each.stat().st_size == len(content) and each.read_bytes() == content for each in places)
        return False

    await until(found)


async def deployed(client: Client, path: Path, **said: float) -> VersionInfo:
    """The same command, until it succeeds: nodes are away for moments."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await client.deploy(path, NAME, **said)  # type: ignore[arg-type]
            except UnavailableError:
                await asyncio.sleep(0.2)


async def wait_newest(client: Client, path: Path) -> None:
    """Wait until the newest version of the endpoint is a file."""
    async with asyncio.timeout(SECONDS):
        while True:
            if (await client.models.list(NAME))[0].file == path.name:
                return
            await asyncio.sleep(0.1)


async def tidy(product: Product, kept: int = 8) -> None:
    """Wait until nothing is left of what came, neither with the broker nor at the node, but versions that are kept."""
    models = product.state_dir / "agent" / "models"

    def left() -> list[str]:
        found = [*(product.state_dir / "versions").iterdir(), *models.glob(".staging/*")]
        return [str(each) for each in found]

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await until(lambda: not left())
    assert left() == []
    assert len(list(models.glob(f"{NAME}/[0-9]*"))) <= kept


async def answers(client: Client, value: float) -> None:
    """Check what the endpoint answers with."""
    answer = await client.infer(NAME, {"x": np.zeros((1, 4), np.float32)})
    assert answer.outputs["y"].tolist() == [[value] * 4]


@in_one_loop
async def test_an_agent_that_is_killed_while_a_file_comes_or_is_loaded(shared_product: Product, tmp_path: Path) -> None:
    first, second, third = (padded(tmp_path, value) for value in (1.0, 2.0, 3.0))
    async with client_of(shared_product) as alice:
        assert (await alice.deploy(first, NAME)).live
        async with asked(shared_product) as asking:
            killing = halfway(lambda: kill_agent(shared_product))
            (found,) = await asyncio.gather(alice.deploy(second, NAME, progress=killing), return_exceptions=True)
            assert isinstance(found, VersionInfo) or "node" in str(found), found
            assert (await deployed(alice, second)).live
            await answers(alice, 2.0)
            with held_serving(shared_product):
                task = asyncio.create_task(alice.deploy(third, NAME))
                await is_there(shared_product, third)
                kill_agent(shared_product)
            (found,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(found, VersionInfo) or "deploy it again" in str(found)
            assert (await deployed(alice, third)).live
            await answers(alice, 3.0)
        assert set().union(*asking.values.values()) == {1.0, 2.0, 3.0}
        await tidy(shared_product)


DIED = "does not answer; start it with 'tiercel up'|was cut off in the middle"
"""By whether a piece of the file was on its way just then."""


@in_one_loop
async def test_a_broker_that_is_killed_while_a_file_comes_or_is_loaded(shared_product: Product, tmp_path: Path) -> None:
    first, second, third = (padded(tmp_path, value) for value in (11.0, 12.0, 13.0))
    async with client_of(shared_product) as alice:
        await deployed(alice, first)
    async with asked(shared_product) as asking:
        async with client_of(shared_product) as alice:
            with pytest.raises(UnavailableError, match=DIED):
                await alice.deploy(second, NAME, progress=halfway(lambda: os.kill(shared_product.pid, signal.SIGKILL)))
        with contextlib.suppress(ProcessLookupError):  # it is gone already
            await shared_product.kill()
        await shared_product.start()
        async with client_of(shared_product) as alice:
            await tidy(shared_product)
            assert (await deployed(alice, second)).live
            await answers(alice, 12.0)
            with held_serving(shared_product):
                task = asyncio.create_task(alice.deploy(third, NAME, accuracy=0.9))
                await is_there(shared_product, third)
                await shared_product.kill()
            with pytest.raises(UnavailableError, match="does not answer; start it with 'tiercel up'"):
                await task
        await shared_product.start()
        async with client_of(shared_product) as alice:
            # What the broker had taken becomes a version by itself, and the same command makes no harm.
            await wait_newest(alice, third)
            there = (await alice.models.list(NAME))[0]
            assert await deployed(alice, third, accuracy=0.9) == replace(there, was_there=True)
            await answers(alice, 13.0)
            await tidy(shared_product)
    assert set().union(*asking.values.values()) == {11.0, 12.0, 13.0}


@in_one_loop
async def test_a_client_that_goes_away_or_lies_changes_nothing(shared_product: Product, tmp_path: Path) -> None:
    path, other = padded(tmp_path, 21.0), padded(tmp_path, 22.0)
    async with client_of(shared_product) as alice:
        before = await deployed(alice, path)
        async with asked(shared_product):
            task: asyncio.Task[VersionInfo]
            task = asyncio.create_task(alice.deploy(other, NAME, progress=halfway(lambda: bool(task.cancel()))))  # type: ignore[arg-type]
            await asyncio.wait([task])
            assert task.cancelled()
            await tidy(shared_product)
            content = other.read_bytes()
            for announced, sent, words in lies(content):
                with pytest.raises(InvalidSpecError, match=words):
                    await send(alice, announced, sent)
            await tidy(shared_product)
            assert (await alice.models.list(NAME))[0].version == before.version
            await answers(alice, 21.0)
            with held_serving(shared_product):
                task = asyncio.create_task(alice.deploy(other, NAME))
                await is_there(shared_product, other)
                task.cancel()
                await asyncio.wait([task])
            # All of it was here: it is a version all the same.
            await wait_newest(alice, other)
            await answers(alice, 22.0)
            await tidy(shared_product)


def lies(content: bytes) -> list[tuple[Artefact, bytes, str]]:
    """What is said of a file, what is sent, and what is answered."""
    true = Artefact(hashlib.sha256(content).hexdigest(), len(content))
    return [
        (true, content[:-1], "model.onnx ends 1 bytes too early"),
        (true, content + b"x", "there is more of it than was announced"),
        (replace(true, size_bytes=len(content) - 1), content, "is not what was announced: its SHA-256 differs"),
        (replace(true, sha256="0" * 64), content, "is not what was announced: its SHA-256 differs"),
        (true, b"", rf"model.onnx ends {len(content)} bytes too early"),
    ]


async def send(client: Client, announced: Artefact, content: bytes) -> None:
    """Send a file as no client of ours does."""
    stub = models_pb2_grpc.ModelsServiceStub(client._connection.channel)
    header = to_proto(Deploy(NAME, "lie.onnx", announced), models_pb2.DeployHeader)

    async def requests() -> AsyncGenerator[models_pb2.DeployModelRequest]:
        yield models_pb2.DeployModelRequest(header=header)
        for at in range(0, len(content), 256 * 1024):
            yield models_pb2.DeployModelRequest(data=content[at : at + 256 * 1024])

    await client._connection.send(stub.DeployModel, requests(), seconds=SECONDS)


@in_one_loop
async def test_files_and_a_job_that_come_at_once_all_become_versions(shared_product: Product, tmp_path: Path) -> None:
    paths = [padded(tmp_path, 30.0 + number) for number in range(3)]
    spec = digits_job(NAME, (0.9, 0.99), script=Script("train.py", DELIVERS.encode()))
    async with client_of(shared_product) as alice:
        await deployed(alice, padded(tmp_path, 29.0))
        async with asked(shared_product) as asking:
            handle = await alice.submit(spec)
            came = await asyncio.gather(*(deployed(alice, path) for path in paths))
            job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        assert len({each.version for each in came}) == len(came)
        known = await alice.models.list(NAME)
        numbers = [each.version for each in known]
        assert len(set(numbers)) == len(numbers)
        assert {tier.version for tier in job.tiers if tier.version} <= set(numbers)
        assert [each.live for each in known].count(True) == 1
        assert set(asking.values) <= {str(each) for each in numbers}
        await tidy(shared_product)
