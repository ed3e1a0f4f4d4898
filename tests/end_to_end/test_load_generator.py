"""The application of the demo against the real inference server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from testing.application_process import ApplicationError, ApplicationProcess
from testing.asking import Target
from testing.load_generator import LoadGenerator
from testing.load_record import LoadRecord
from testing.onnx_models import mlp, plus, put
from testing.sample_images import Outputs, Samples
from testing.serving_process import ServingProcess, serving
from testing.until import until

pytestmark = pytest.mark.end_to_end

RATE = 200.0
WAIT_SECONDS = 60.0


@contextlib.contextmanager
def empty_server(folder: Path) -> Iterator[ServingProcess]:
    (folder / "models").mkdir()
    with serving(folder / "models", folder) as process:
        yield process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    """One for all tests, each of which has models of its own."""
    with empty_server(tmp_path_factory.mktemp("serving")) as process:
        yield process


def zeros_target(server: ServingProcess, name: str) -> Target:
    """Asks about zeros, so that a model that adds a constant answers with it."""

    def constant(_: int, outputs: Outputs) -> float:
        return float(outputs["y"][0])

    images = np.zeros((3, 2, 2), dtype=np.float32)
    return Target(name, Samples(images, constant), f"http://{server.http}/v2/models/{name}")


async def deliver(server: ServingProcess, version: int, content: bytes, name: str) -> None:
    put(server.repository, name, version, content)
    reply = await asyncio.to_thread(server.load, name)
    assert reply.status == 200, reply.error


class Running:
    """A load generator at work."""

    def __init__(self, *targets: Target) -> None:
        self.record = LoadRecord()
        self.first_answers: list[tuple[str, int]] = []
        self._stopped = asyncio.Event()
        self._generator = LoadGenerator(targets, RATE, self.record, self._first_answer)

    def _first_answer(self, endpoint: str, version: int, at: float) -> None:
        self.first_answers.append((endpoint, version))

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._generator.run(self._stopped))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await self._task

    async def wait_requests(self, count: int) -> None:
        """Wait until so many more requests have ended."""
        wanted = len(self.record.requests) + count
        await until(lambda: len(self.record.requests) >= wanted, seconds=WAIT_SECONDS)


async def test_every_request_is_answered_before_during_and_after_a_swap(server: ServingProcess) -> None:
    async with Running(zeros_target(server, "swapped")) as running:
        await deliver(server, 1, plus(1.0), "swapped")
        await running.wait_requests(50)
        await deliver(server, 2, plus(2.0), "swapped")
        await until(lambda: ("swapped", 2) in running.first_answers, seconds=WAIT_SECONDS)
        await running.wait_requests(50)
    record = running.record
    assert record.failed == 0, record.failures
    assert running.first_answers == [("swapped", 1), ("swapped", 2)]
    assert {version: score for version, (score, _) in record.scores("swapped").items()} == {1: 1.0, 2: 2.0}
    assert record.rate() == pytest.approx(RATE, rel=0.05)


async def test_the_total_stays_the_same_when_another_endpoint_comes(server: ServingProcess) -> None:
    async with Running(zeros_target(server, "one"), zeros_target(server, "two")) as running:
        await deliver(server, 1, plus(1.0), "one")
        await running.wait_requests(50)
        assert {request.endpoint for request in running.record.requests} == {"one"}
        await deliver(server, 1, plus(1.0), "two")
        await until(lambda: ("two", 1) in running.first_answers, seconds=WAIT_SECONDS)
        await running.wait_requests(100)
    last = sorted(running.record.requests, key=lambda request: request.at)[-40:]
    assert {request.endpoint for request in last} == {"one", "two"}
    assert running.record.rate() == pytest.approx(RATE, rel=0.05)
    assert running.record.failed == 0


async def test_a_model_that_is_gone_is_a_failure_for_each_request(server: ServingProcess) -> None:
    async with Running(zeros_target(server, "unloaded")) as running:
        await deliver(server, 1, plus(1.0), "unloaded")
        await running.wait_requests(20)
        path = "/v2/repository/models/unloaded/unload"
        assert (await asyncio.to_thread(server.request, "POST", path)).status == 200
        await until(lambda: running.record.failed >= 20, seconds=WAIT_SECONDS)
    assert running.record.failures[0].why.startswith("status 4")


async def test_answers_that_are_not_finite_are_failures(server: ServingProcess) -> None:
    async with Running(zeros_target(server, "infinite")) as running:
        await deliver(server, 1, plus(float("inf")), "infinite")
        await until(lambda: running.record.failed >= 5, seconds=WAIT_SECONDS)
    assert running.record.failed == len(running.record.requests)


async def test_a_server_that_is_gone_is_a_failure_for_each_request(tmp_path: Path) -> None:
    with empty_server(tmp_path) as server:
        async with Running(zeros_target(server, "orphaned")) as running:
            await deliver(server, 1, plus(1.0), "orphaned")
            await running.wait_requests(20)
            server.process.kill()
            await until(lambda: running.record.failed >= 20, seconds=WAIT_SECONDS)
        assert any("no answer" in failure.why for failure in running.record.failures)


async def test_the_application_process_records_what_it_saw(server: ServingProcess, tmp_path: Path) -> None:
    await deliver(server, 1, mlp((64, 32, 10)), "digits")
    news: list[Mapping[str, Any]] = []
    async with (
        ApplicationProcess(server.http, [("digits", "digits")], RATE, tmp_path) as application,
        asyncio.TaskGroup() as group,
    ):
        following = group.create_task(application.follow(news.append))
        await until(lambda: any(each.get("requests", 0) > 50 for each in news), seconds=WAIT_SECONDS)
        following.cancel()
        await asyncio.wait([following])
        record = await application.stop()
    assert record.failed == 0, record.failures
    assert len(record.requests) > 50
    assert record.cpu_seconds > 0
    score, answers = record.scores("digits")[1]
    assert answers == len(record.requests)
    assert 0 <= score < 0.5, "a model that nobody trained guesses"
    assert {key: news[0][key] for key in ("endpoint", "version")} == {"endpoint": "digits", "version": 1}


async def test_an_application_that_ends_early_is_an_error_that_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match=r"application\.log"):
        async with ApplicationProcess("127.0.0.1:1", [("digits", "no-such-kind")], RATE, tmp_path):
            pass
    assert "no-such-kind" in (tmp_path / "application.log").read_text()


async def test_an_application_does_not_outlive_whoever_started_it(server: ServingProcess, tmp_path: Path) -> None:
    async with ApplicationProcess(server.http, [("digits", "digits")], RATE, tmp_path) as application:
        process = application._started()
        assert process.stdin is not None
        # What the system does with the pipe of a process that dies.
        process.stdin.close()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0
