"""Deliveries of runs that the test plays, into a real delivery log and repository."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testing import onnx_models
from testing.nodes_broker import wanted_delivery
from testing.until import until
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.heard_variants import heard_variants
from tiercel.core.shares import AcceleratorShare
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.deliveries.copies import PlacedFiles
from tiercel.trainer_agent.deliveries.deliveries import Deliveries
from tiercel.trainer_agent.deliveries.delivery_log import DeliveryLog
from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError, TransferError
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.supervision import Signal, Supervisor
from tiercel.v1 import common_pb2, nodes_pb2, trainer_pb2

MODEL = onnx_models.identity()
GOOD = trainer_pb2.ExportDone(value=0.905, sha256=hashlib.sha256(MODEL).hexdigest())
SHORT = FallsShortError("has score=0.8995, which misses the target 0.9")
ENDED = DeliveryFailedError("The run ended before it handed over the model.")


class PlayedRun:
    """A run and its gateway, which answers as the test says, in that order."""

    def __init__(self, run_id: str, folder: Path, *answers: trainer_pb2.ExportDone | DeliveryFailedError) -> None:
        self.run_id, self.folder, self.gateway = run_id, JobFolder(folder), self
        self.order = SimpleNamespace(spec=SimpleNamespace(variants=(), variants_max_loss=0.01))
        self.share = Share(CpuShare(1.0))
        self.has_successor = False
        self.reports: list[float] = []
        self.asked: list[tuple[int, float]] = []
        self._answers = list(answers)

    async def export(self, request: trainer_pb2.ExportRequest, deadline_seconds: float) -> trainer_pb2.ExportDone:
        """The next answer; remembers the number of the request and the last report before it."""
        self.asked.append((request.request_number, self.reports[-1]))
        answer = self._answers.pop(0)
        if isinstance(answer, DeliveryFailedError):
            raise answer
        return answer


class PlayedRuns:
    """The runs of the node."""

    def __init__(self) -> None:
        self.changed = Signal()
        self._live: dict[str, PlayedRun] = {}
        self._all: dict[str, PlayedRun] = {}

    def live(self, run_id: str) -> PlayedRun | None:
        return self._live.get(run_id)

    def live_run_of_job(self, job_id: str) -> PlayedRun | None:
        return next(iter(self._live.values()), None)

    def awaits_successor(self, job_id: str) -> bool:
        return any(run.has_successor for run in self._all.values())

    def reports(self, run_id: str) -> list[nodes_pb2.Progress]:
        return [nodes_pb2.Progress(metrics={"score": value}) for value in self._all[run_id].reports]

    def begin(self, run: PlayedRun) -> None:
        self._live[run.run_id] = self._all[run.run_id] = run
        self.changed.fire()

    def report(self, run: PlayedRun, value: float) -> None:
        run.reports.append(value)
        self.changed.fire()

    def end(self, run: PlayedRun) -> None:
        del self._live[run.run_id]
        self.changed.fire()


class Node:
    """A node with one wanted delivery."""

    def __init__(self, folder: Path, tasks: Supervisor, *, serves_accelerated: bool = False) -> None:
        self.folder, self.runs, self.told = folder, PlayedRuns(), list[nodes_pb2.DeliveryStatus]()
        self.fetching: Exception | None = None
        self.is_slow = False
        export = folder / "job" / "exports" / "job-tier-1"
        export.mkdir(parents=True)
        (export / "model.onnx").write_bytes(MODEL)
        (export / "reference.npz").write_bytes(b"")
        repository = ModelRepository(folder / "models")
        self.deliveries = Deliveries(
            delivery_log=DeliveryLog(folder / "deliveries.json"),
            repository=repository,
            runs=cast(RunTable, self.runs),
            served=ServedModels(repository, self, tasks),
            fetch=self.fetch,
            report=self.told.append,
            tasks=tasks,
            serves_accelerated=serves_accelerated,
        )

    def run(self, run_id: str, *answers: Any) -> PlayedRun:
        run = PlayedRun(run_id, self.folder / "job", *answers)
        self.runs.begin(run)
        return run

    async def fetch(self, files: PlacedFiles, staged_id: str) -> None:
        """The broker has what was deployed, and something may go wrong once part of it is here."""
        staged = self.folder / "models" / ".staging" / staged_id
        staged.mkdir(parents=True)
        (staged / "model.onnx").write_bytes(MODEL)
        if self.is_slow:
            await asyncio.Event().wait()
        if self.fetching is not None:
            raise self.fetching

    async def load(self, model: str, version: int | None = None) -> str:
        """Whatever is published answers."""
        return GOOD.sha256

    async def unload(self, model: str) -> None:
        """It answers no more."""

    async def outcome(self) -> nodes_pb2.DeliveryStatus:
        ended = {nodes_pb2.DELIVERY_STAGE_DELIVERED, nodes_pb2.DELIVERY_STAGE_FAILED}
        await until(lambda: self.told and self.told[-1].stage in ended)
        return self.told[-1]


async def all_done() -> None:
    """Let every task go as far as it can without waiting."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with Supervisor() as tasks:
        yield Node(tmp_path, tasks)
        tasks.cancel_all()


async def test_a_run_that_falls_short_is_asked_again_after_each_better_report(node: Node) -> None:
    run = node.run("job-1", SHORT, SHORT, GOOD)
    node.runs.report(run, 0.9002)
    node.deliveries.start(wanted_delivery("job-1", target=0.9))
    await until(lambda: len(run.asked) == 1)
    for no_better in (float("nan"), 0.9001, 0.9002):
        node.runs.report(run, no_better)
        await all_done()
    node.runs.report(run, 0.903)
    await until(lambda: len(run.asked) == 2)
    node.runs.report(run, 0.907)
    status = await node.outcome()
    assert (status.stage, status.value) == (nodes_pb2.DELIVERY_STAGE_DELIVERED, 0.905), status.reason
    assert run.asked == [(1, 0.9002), (2, 0.903), (3, 0.907)]


async def test_a_loss_is_better_when_it_is_smaller(node: Node) -> None:
    run = node.run("job-1", SHORT, GOOD)
    wanted = wanted_delivery("job-1", target=0.2)
    wanted.direction = common_pb2.DIRECTION_MIN
    node.deliveries.start(wanted)
    for value in (0.3, 0.19):
        node.runs.report(run, value)
    await until(lambda: len(run.asked) == 1)
    node.runs.report(run, 0.21)
    await all_done()
    node.runs.report(run, 0.18)
    assert (await node.outcome()).stage == nodes_pb2.DELIVERY_STAGE_DELIVERED
    assert run.asked == [(1, 0.19), (2, 0.18)]


async def test_a_run_that_ends_without_a_better_report_fails_in_the_words_of_the_last_try(node: Node) -> None:
    run = node.run("job-1", SHORT)
    node.runs.report(run, 0.9002)
    node.deliveries.start(wanted_delivery("job-1", target=0.9))
    await until(lambda: run.asked)
    node.runs.report(run, 0.9001)
    node.runs.end(run)
    status = await node.outcome()
    assert status.stage == nodes_pb2.DELIVERY_STAGE_FAILED
    assert status.reason == "has score=0.8995, which misses the target 0.9; no later report was better"
    assert len(run.asked) == 1


async def test_a_run_that_was_lost_after_it_fell_short_is_succeeded(node: Node) -> None:
    first = node.run("job-1", SHORT)
    node.runs.report(first, 0.9002)
    node.deliveries.start(wanted_delivery("job-1", target=0.9))
    await until(lambda: first.asked)
    first.has_successor = True
    node.runs.end(first)
    second = node.run("job-2", SHORT, GOOD)
    node.runs.report(second, 0.9002)  # what it kept, said again
    await until(lambda: second.asked)
    node.runs.report(second, 0.907)
    assert (await node.outcome()).stage == nodes_pb2.DELIVERY_STAGE_DELIVERED
    assert second.asked == [(2, 0.9002), (3, 0.907)]


@pytest.mark.parametrize(
    ("serves_accelerated", "held", "reason"),
    [
        (True, (), ""),
        (True, (AcceleratorShare("GPU-1", 0.5),), "not faster where it was made"),
        (False, (), "not faster where it was made"),
    ],
)
async def test_fp16_that_a_cpu_timed_is_left_to_the_server_where_that_answers_from_an_accelerator(
    serves_accelerated: bool, held: tuple[AcceleratorShare, ...], reason: str, tmp_path: Path
) -> None:
    async with Supervisor() as tasks:
        node = Node(tmp_path, tasks, serves_accelerated=serves_accelerated)
        (tmp_path / "job" / "exports" / "job-tier-1" / "model.fp16.onnx").write_bytes(MODEL)
        slow = CheapVariant(
            VariantKind.FP16, made="f", value=0.905, seconds=4e-4, fp32_seconds=3e-4, sha256=GOOD.sha256
        )
        done = trainer_pb2.ExportDone(cheap_variants=[to_proto(slow, common_pb2.CheapVariant)])
        done.MergeFrom(GOOD)
        run = node.run("job-1", done)
        run.share, run.order.spec.variants = Share(CpuShare(1.0), held), ("fp32", "fp16")
        node.runs.report(run, 0.905)
        node.deliveries.start(wanted_delivery("job-1", target=0.9))
        (found,) = heard_variants((await node.outcome()).cheap_variants)
        assert (found.shipped, reason in found.reason) == (not reason, True)
        assert (found.seconds is None) == (not reason), "a CPU's figures say nothing of it"
        tasks.cancel_all()


async def test_any_other_error_is_final(node: Node) -> None:
    run = node.run("job-1", ENDED)
    node.runs.report(run, 0.9002)
    node.deliveries.start(wanted_delivery("job-1", target=0.9))
    status = await node.outcome()
    assert (status.stage, status.reason) == (nodes_pb2.DELIVERY_STAGE_FAILED, ENDED.message)
    assert len(run.asked) == 1


def deployed() -> nodes_pb2.WantedDelivery:
    """A file that somebody deployed."""
    wanted = wanted_delivery("job-1", target=0.9)
    wanted.deployed_sha256 = GOOD.sha256
    return wanted


@pytest.mark.parametrize("error", [TransferError("the disk is full"), OSError(28, "No space left on device")])
async def test_of_a_file_that_did_not_come_whole_nothing_is_left(node: Node, error: Exception) -> None:
    node.fetching = error
    node.deliveries.start(deployed())
    assert (await node.outcome()).stage == nodes_pb2.DELIVERY_STAGE_FAILED
    assert list((node.folder / "models" / ".staging").iterdir()) == []


async def test_of_a_file_that_nobody_wants_any_more_nothing_is_left(node: Node) -> None:
    node.is_slow = True
    wanted = deployed()
    node.deliveries.start(wanted)
    staging = node.folder / "models" / ".staging"
    await until(lambda: staging.is_dir() and list(staging.iterdir()))
    node.deliveries.abandon(wanted.delivery_id)
    await until(lambda: not list(staging.iterdir()))
