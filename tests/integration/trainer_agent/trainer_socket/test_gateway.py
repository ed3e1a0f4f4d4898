"""The agent's end of a run's socket, with a plain gRPC client at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from testing.until import until
from tiercel.trainer_agent.disk.job_folder import SOCKET
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.reports.metric_names import BAD_NAME, MAX_METRICS, TOO_MANY_METRICS
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.trainer_agent.trainer_socket.door import CONNECTIONS, socket_path
from tiercel.trainer_agent.trainer_socket.gateway import TrainerGateway
from tiercel.v1 import PROTOCOL, trainer_pb2, trainer_pb2_grpc

WELCOME = trainer_pb2.TrainerWelcome(run_id="job-1", metric="accuracy", max_epochs=7, cpu_cores=2.0)
EXPORT = trainer_pb2.ExportRequest(delivery_id="job-tier-1", tier=1, target=0.9)
DONE = trainer_pb2.ExportDone(delivery_id="job-tier-1", value=0.91, sha256="ab")


class Gateway:
    """A gateway that keeps what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[trainer_pb2.TrainerReport] = []
        self.use: list[trainer_pb2.AcceleratorUse] = []
        self.told: list[str] = []
        self.begun = 0
        self.gateway = TrainerGateway(
            WELCOME,
            Goal("accuracy", smaller_is_better=False, targets=()),
            "secret",
            self._ingest,
            self._begin,
            self.use.append,
            self.told.append,
        )

    async def _ingest(self, report: trainer_pb2.TrainerReport) -> None:
        self.reports.append(report)

    async def _begin(self) -> None:
        self.begun += 1


class Trainer:
    """One stream of a trainer."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, **message: Any) -> None:
        await self._call.write(trainer_pb2.AttachRequest(**message))

    async def receive(self) -> trainer_pb2.AttachResponse:
        async with asyncio.timeout(90):
            answer: trainer_pb2.AttachResponse = await self._call.read()
        return answer

    async def is_cut_off(self) -> bool:
        return await self.receive() == aio.EOF

    async def code(self) -> grpc.StatusCode:
        async with asyncio.timeout(90):
            code: grpc.StatusCode = await self._call.code()
        return code


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with serving(tmp_path) as served:
        yield served


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Gateway]:
    served = Gateway(folder)
    await served.gateway.open(folder, folder / "inner")
    async with Supervisor() as tasks:
        tasks.start("socket", served.gateway.serve())
        yield served
        await served.gateway.close(0)
        tasks.cancel_all()


@asynccontextmanager
async def attached(served: Gateway, token: str = "secret") -> AsyncIterator[Trainer]:
    with socket_path(served.folder) as path:
        channel = aio.insecure_channel(f"unix:{path}", [("grpc.use_local_subchannel_pool", 1)])
        await channel.channel_ready()
    async with channel:
        call = trainer_pb2_grpc.TrainerServiceStub(channel).Attach()
        trainer = Trainer(call)
        await trainer.send(hello=trainer_pb2.TrainerHello(token=token, protocol=PROTOCOL))
        yield trainer
        call.cancel()


def report(sequence: int) -> trainer_pb2.TrainerReport:
    return trainer_pb2.TrainerReport(sequence=sequence, epoch=sequence, metrics={"accuracy": 0.5})


async def test_reports_are_taken_in_once_and_always_acknowledged(served: Gateway) -> None:
    async with attached(served) as trainer:
        assert (await trainer.receive()).welcome == WELCOME
        for sequence in (1, 2, 1, 2, 3):
            await trainer.send(report=report(sequence))
            assert (await trainer.receive()).report_ack.sequence == sequence
    async with attached(served) as trainer:
        await trainer.receive()
        await trainer.send(report=report(3))
        assert (await trainer.receive()).report_ack.sequence == 3
    assert [one.sequence for one in served.reports] == [1, 2, 3]


async def test_that_a_training_begins_goes_on_before_what_it_reports(served: Gateway) -> None:
    async with attached(served) as trainer:
        await trainer.receive()
        await trainer.send(begun=trainer_pb2.TrainerBegun())
        await trainer.send(report=report(1))
        await trainer.receive()
        assert served.begun == 1


async def test_that_a_training_has_ended_goes_on_at_once(served: Gateway) -> None:
    async with attached(served) as trainer:
        await trainer.receive()
        for sequence in range(1, 200):
            await trainer.send(report=report(sequence))
            await trainer.receive()
        last = trainer_pb2.TrainerReport(sequence=200, epoch=3, metrics={"accuracy": 0.4}, ended=True)
        await trainer.send(report=last)
        await trainer.receive()
    assert served.reports[-1] == last


async def test_use_of_accelerators_is_taken_in_if_it_can_be(served: Gateway) -> None:
    use = trainer_pb2.AcceleratorUse(accelerator_seconds=1.5, memory_bytes=7)
    async with attached(served) as trainer:
        await trainer.receive()
        for seconds in (float("nan"), float("inf"), -1.0):
            await trainer.send(use=trainer_pb2.AcceleratorUse(accelerator_seconds=seconds))
        await trainer.send(use=use)
        await until(lambda: served.use == [use])


async def test_a_pace_is_sent_when_a_part_of_it_changes_and_to_who_attaches_later(served: Gateway) -> None:
    async with attached(served) as trainer:
        await trainer.receive()
        served.gateway.pace(0.0, 0.0)  # no limit is what holds anyway
        served.gateway.pace(0.0, 0.3)
        served.gateway.pace(0.0, 0.3)
        served.gateway.pace(1.5, 0.3)
        served.gateway.pace(0.0, 0.0)
        paces = [(await trainer.receive()).pace for _ in range(3)]
        assert [(pace.cores, pace.accelerator_fraction) for pace in paces] == [(0.0, 0.3), (1.5, 0.3), (0.0, 0.0)]
    served.gateway.pace(0.0, 0.4)
    async with attached(served) as trainer:
        await trainer.receive()
        assert (await trainer.receive()).pace.accelerator_fraction == 0.4


async def test_a_script_that_sends_metrics_without_bounds_has_a_few_passed_on_and_is_told_why(served: Gateway) -> None:
    metrics = {str(number): 1.0 for number in range(100)} | {"x" * 10_000: 1.0, "no name": 1.0, "accuracy": 0.5}
    async with attached(served) as trainer:
        await trainer.receive()
        for sequence in (1, 2):
            await trainer.send(report=trainer_pb2.TrainerReport(sequence=sequence, metrics=metrics))
            assert (await trainer.receive()).report_ack.sequence == sequence
    assert [len(one.metrics) for one in served.reports] == [MAX_METRICS, MAX_METRICS]
    assert all(one.metrics["accuracy"] == 0.5 and one.ByteSize() < 8192 for one in served.reports)
    assert sorted(served.told) == sorted([f"{BAD_NAME}.", f"{TOO_MANY_METRICS}."])
    await served.gateway.close(0)
    assert f"4 times in this run: {BAD_NAME}." in served.told


async def test_a_message_too_large_ends_its_stream_alone(served: Gateway) -> None:
    async with attached(served) as trainer:
        await trainer.receive()
        await trainer.send(report=trainer_pb2.TrainerReport(sequence=1, metrics={"x" * 1_000_000: 1.0}))
        assert await trainer.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    async with attached(served) as trainer:
        assert (await trainer.receive()).welcome == WELCOME
    assert served.reports == []


async def test_a_script_that_reports_without_pause_has_few_passed_on_with_the_best_and_the_last(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, best = 1500, 700
    (served.folder / "quick").mkdir()
    monkeypatch.setattr("tiercel.trainer_agent.trainer_socket.gateway._MESSAGES_AT_ONCE", 1e9)
    async with serving(served.folder / "quick") as quick, attached(quick) as trainer:
        await trainer.receive()
        for sequence in range(1, count + 1):
            value = 0.8 if sequence == best else 0.1
            await trainer.send(report=trainer_pb2.TrainerReport(sequence=sequence, metrics={"accuracy": value}))
        await until(lambda: quick.reports and quick.reports[-1].sequence == count)
        sequences = [one.sequence for one in quick.reports]
        assert best in sequences
        assert sequences == sorted(sequences)
        assert len(quick.told) <= 1
    assert len(quick.reports) < count


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_many_connections_to_the_socket_cost_the_agent_a_few_and_the_attached_trainer_nothing(
    served: Gateway,
) -> None:
    before = _descriptors()
    async with attached(served) as trainer:
        await trainer.receive()
        with socket_path(served.folder) as path, contextlib.ExitStack() as stack:
            for _ in range(60):
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.setblocking(False)
                await asyncio.get_running_loop().sock_connect(one, path)
            await until(lambda: served.told)
            # Ours are 60 and the client's; the agent's are three for each that it has let in, and gRPC's own.
            assert _descriptors() - before <= 60 + 4 * CONNECTIONS
            await trainer.send(report=report(1))
            assert (await trainer.receive()).report_ack.sequence == 1
        async with attached(served) as again:  # there is room again
            assert (await again.receive()).welcome == WELCOME
    assert len(served.told) == 1
    assert "connections to the socket" in served.told[0]


async def test_only_who_has_the_token_is_let_in(served: Gateway) -> None:
    async with attached(served, token="guess") as trainer:
        assert await trainer.code() == grpc.StatusCode.UNAUTHENTICATED
    assert not served.gateway.is_attached


async def test_a_hello_comes_first(served: Gateway) -> None:
    with socket_path(served.folder) as path:
        channel = aio.insecure_channel(f"unix:{path}", [("grpc.use_local_subchannel_pool", 1)])
        await channel.channel_ready()
    async with channel:
        call = trainer_pb2_grpc.TrainerServiceStub(channel).Attach()
        await call.write(trainer_pb2.AttachRequest(report=report(1)))
        assert await call.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert served.reports == []


async def test_a_newer_stream_ends_an_older_one(served: Gateway) -> None:
    async with attached(served) as older:
        await older.receive()
        async with attached(served) as newer:
            await newer.receive()
            assert await older.is_cut_off()
            served.gateway.pace(0.5)
            assert (await newer.receive()).pace.cores == 0.5


async def test_who_attaches_again_is_told_everything_again(served: Gateway) -> None:
    gateway = served.gateway
    gateway.pace(0.0)  # no limit, as it was: nothing to say
    async with Supervisor() as tasks:
        async with attached(served) as trainer:
            await trainer.receive()
            gateway.pace(0.5)
            gateway.pace(0.5)
            export = tasks.start("export", self_check(gateway))
            assert (await trainer.receive()).pace.cores == 0.5
            assert (await trainer.receive()).export == EXPORT
            gateway.stop("enough")
            assert (await trainer.receive()).stop.reason == "enough"
        await until(lambda: not gateway.is_attached)
        async with attached(served) as trainer:
            kinds = [(await trainer.receive()).WhichOneof("message") for _ in range(4)]
            assert kinds == ["welcome", "pace", "export", "stop"]
            await trainer.send(export_done=trainer_pb2.ExportDone(delivery_id="another"))
            await trainer.send(export_done=DONE)
            await export


async def self_check(gateway: TrainerGateway) -> None:
    assert await gateway.export(EXPORT, 10) == DONE


async def test_a_model_that_does_not_come(served: Gateway) -> None:
    with pytest.raises(DeliveryFailedError, match=r"did not hand over the model within 0 s"):
        await served.gateway.export(EXPORT, 0)
    async with attached(served) as trainer:
        assert (await trainer.receive()).HasField("welcome")
        served.gateway.pace(1.0)
        assert (await trainer.receive()).HasField("pace")  # the request was forgotten


async def test_what_fell_short_at_an_earlier_request_is_no_answer_to_a_later_one(served: Gateway) -> None:
    async def ask() -> None:
        request = trainer_pb2.ExportRequest(delivery_id="job-tier-1", tier=1, target=0.9, request_number=2)
        with pytest.raises(FallsShortError, match=r"misses it with 0\.8997"):
            await served.gateway.export(request, 60)

    async with attached(served) as trainer, Supervisor() as tasks:
        await trainer.receive()
        tasks.start("export", ask())
        assert (await trainer.receive()).export.request_number == 2
        for number, value in ((1, 0.8995), (2, 0.8997)):  # a new stream repeats the last answer
            words = f"misses it with {value}"
            done = trainer_pb2.ExportDone(
                delivery_id="job-tier-1", error=words, falls_short=True, request_number=number
            )
            await trainer.send(export_done=done)


async def test_the_end_of_the_run_ends_open_requests(served: Gateway) -> None:
    async def ask() -> None:
        with pytest.raises(DeliveryFailedError, match="The run ended before"):
            await served.gateway.export(EXPORT, 60)

    async with attached(served) as trainer, Supervisor() as tasks:
        await trainer.receive()
        tasks.start("export", ask())
        assert (await trainer.receive()).HasField("export")
        await served.gateway.close(0)
    await ask()


async def test_a_gateway_that_was_killed_leaves_nothing_that_the_next_does_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    inner = tmp_path / "inner"
    inner.mkdir()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(inner / SOCKET))
    async with serving(tmp_path) as served, attached(served) as trainer:
        await trainer.receive()
        assert stat.S_IMODE(inner.stat().st_mode) == 0o700
    assert not inner.exists()
    assert not list((tmp_path / "temporary").iterdir())
