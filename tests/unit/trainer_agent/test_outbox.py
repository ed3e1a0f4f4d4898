from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tiercel.trainer_agent.outbox import Outbox, OutboxFullError, Reporter
from tiercel.trainer_agent.run_log import RunLog
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import nodes_pb2

EXITED = nodes_pb2.RunStatus(run_id="a-1", state=nodes_pb2.RUN_STATE_EXITED, exit_code=0)
RUNNING = nodes_pb2.RunStatus(run_id="a-1", state=nodes_pb2.RUN_STATE_RUNNING)


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "a-1.log")


@contextlib.asynccontextmanager
async def shipping(log: RunLog) -> AsyncIterator[tuple[Outbox, Reporter]]:
    outbox, reporter = Outbox(lambda: [("a-1", log)]), Reporter()
    reporter.attach(outbox)
    async with Supervisor() as tasks:
        tasks.start("output", outbox.ship_output())
        yield outbox, reporter
        tasks.cancel_all()


async def take(outbox: Outbox, until: Callable[[nodes_pb2.ConnectRequest], bool]) -> list[nodes_pb2.ConnectRequest]:
    """Messages up to the first that is wanted."""
    taken: list[nodes_pb2.ConnectRequest] = []
    async with asyncio.timeout(10):
        while not taken or not until(taken[-1]):
            taken.append(await outbox.get())
    return taken


async def test_output_goes_from_where_the_broker_is_and_before_the_end_of_the_run(log: RunLog) -> None:
    log.append(b"x" * 200_000)
    async with shipping(log) as (outbox, reporter):
        outbox.know_output("a-1", 50_000)
        outbox.know_output("a-1", 0)  # said again it changes nothing
        reporter.run_changed(EXITED)
        messages = await take(outbox, lambda message: message.HasField("run"))
    chunks = [message.log for message in messages if message.HasField("log")]
    assert chunks[0].offset_bytes == 50_000
    for before, after in itertools.pairwise(chunks):
        assert before.offset_bytes + len(before.data) == after.offset_bytes
    assert chunks[-1].offset_bytes + len(chunks[-1].data) == 200_000
    assert messages[-1].run == EXITED


async def test_output_that_nobody_asked_for_stays_here(log: RunLog) -> None:
    log.append(b"x")
    async with shipping(log) as (outbox, reporter):
        reporter.output_grew()
        reporter.run_changed(EXITED)
        assert await take(outbox, lambda message: message.HasField("run")) == [nodes_pb2.ConnectRequest(run=EXITED)]


async def test_much_output_does_not_fill_the_queue(log: RunLog) -> None:
    log.append(b"x" * 10_000_000)
    async with shipping(log) as (outbox, reporter):
        outbox.know_output("a-1", 0)
        first = await take(outbox, lambda message: message.HasField("log"))
        reporter.progress_made(nodes_pb2.Progress(run_id="a-1", sequence=1))
        ahead = await take(outbox, lambda message: message.HasField("progress"))
    assert len(first) + len(ahead) < 30


async def test_a_broker_that_does_not_read_is_given_up(log: RunLog) -> None:
    outbox, reporter = Outbox(lambda: [("a-1", log)]), Reporter()
    reporter.attach(outbox)
    for _ in range(5000):
        reporter.run_changed(RUNNING)
    with pytest.raises(OutboxFullError):
        async with asyncio.timeout(10):
            await outbox.wait_full()


async def test_without_a_stream_nothing_is_kept_and_nothing_fails() -> None:
    reporter = Reporter()
    reporter.run_changed(RUNNING)
    reporter.run_changed(EXITED)
    reporter.output_grew()
    reporter.delivery_changed(nodes_pb2.DeliveryStatus())
    reporter.serving_changed(nodes_pb2.ServingStatus())
    await reporter.wait_said()


async def test_waiting_until_all_is_said(log: RunLog) -> None:
    async with shipping(log) as (outbox, reporter):
        reporter.run_changed(EXITED)
        async with asyncio.timeout(10), Supervisor() as tasks:
            waiting = tasks.start("waits", reporter.wait_said())
            await take(outbox, lambda message: message.HasField("run"))
            await waiting
    reporter.detach()
    await reporter.wait_said()
