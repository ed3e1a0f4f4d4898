from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tiercel.trainer_agent.connection.outbox import UNCONFIRMED_REPORTS, Outbox, Reporter
from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import nodes_pb2

EXITED = nodes_pb2.RunStatus(run_id="a-1", state=nodes_pb2.RUN_STATE_EXITED, exit_code=0)
RUNNING = nodes_pb2.RunStatus(run_id="a-1", state=nodes_pb2.RUN_STATE_RUNNING)


@dataclass
class Facts:
    """What is kept of some runs."""

    logs: dict[str, RunLog] = field(default_factory=dict)
    kept: dict[str, KeptReports] = field(default_factory=dict)

    def log(self, run_id: str) -> RunLog | None:
        return self.logs.get(run_id)

    def reports(self, run_id: str) -> KeptReports | None:
        return self.kept.get(run_id)

    def report(self, run_id: str, count: int) -> None:
        kept = self.kept.setdefault(run_id, KeptReports(Goal("score", smaller_is_better=False, targets=())))
        for sequence in range(len(kept) + 1, len(kept) + count + 1):
            kept.add(nodes_pb2.Progress(run_id=run_id, sequence=sequence))


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "a-1.log")


def make_outbox(facts: Facts) -> tuple[Outbox, Reporter]:
    outbox, reporter = Outbox(facts, nodes_pb2.Heartbeat), Reporter()
    reporter.attach(outbox)
    return outbox, reporter


@contextlib.asynccontextmanager
async def shipping(log: RunLog) -> AsyncIterator[tuple[Outbox, Reporter]]:
    outbox, reporter = make_outbox(Facts({"a-1": log}))
    async with Supervisor() as tasks:
        tasks.start("output", outbox.gather_output())
        yield outbox, reporter
        tasks.cancel_all()


async def take(outbox: Outbox, until: Callable[[nodes_pb2.ConnectRequest], bool]) -> list[nodes_pb2.ConnectRequest]:
    """Messages up to the first that is wanted."""
    taken: list[nodes_pb2.ConnectRequest] = []
    async with asyncio.timeout(90):
        while not taken or not until(taken[-1]):
            taken.append(await outbox.get())
    return taken


def take_all(outbox: Outbox) -> list[nodes_pb2.ConnectRequest]:
    """Messages that are to be sent at once."""
    return list(iter(outbox._next, None))


def told(messages: list[nodes_pb2.ConnectRequest], run_id: str) -> list[int]:
    """The reports of a run, in the order in which they were sent."""
    return [m.progress.sequence for m in messages if m.HasField("progress") and m.progress.run_id == run_id]


# --- A broker that comes back -----------------------------------------------------------------------------------------


def test_after_a_reconnection_only_reports_that_the_broker_lacks_are_sent_each_once_and_in_order() -> None:
    facts = Facts()
    for run in range(8):
        facts.report(f"job{run}-1", 1000)
    outbox, _ = make_outbox(facts)
    known = {f"job{run}-1": 100 * run for run in range(8)}
    outbox.begin(known, ())
    sent: dict[str, list[int]] = {run_id: [] for run_id in known}
    while messages := take_all(outbox):
        for run_id in known:
            sent[run_id] += told(messages, run_id)
        outbox.confirm({run_id: sequences[-1] for run_id, sequences in sent.items()})
    assert sent == {run_id: list(range(had + 1, 1001)) for run_id, had in known.items()}


def test_a_heartbeat_goes_before_any_backlog_and_only_one_waits() -> None:
    facts = Facts()
    facts.report("a-1", 1000)
    outbox, reporter = make_outbox(facts)
    outbox.begin({"a-1": 0}, ())
    outbox.want_heartbeat()
    outbox.want_heartbeat()
    reporter.delivery_changed(nodes_pb2.DeliveryStatus(delivery_id="d"))
    kinds = [message.WhichOneof("message") for message in take_all(outbox)]
    assert kinds == ["heartbeat", "delivery", *["progress"] * UNCONFIRMED_REPORTS]


def test_an_exit_waits_for_the_reports_of_its_run_and_for_no_other_backlog(log: RunLog) -> None:
    log.append(b"x" * 1_000_000)
    facts = Facts({"much-1": log})
    facts.report("much-1", 1000)
    facts.report("a-1", 3)
    outbox, _ = make_outbox(facts)
    outbox.begin({"much-1": 0, "a-1": 1}, [EXITED])
    outbox.know_output("much-1", 0)
    messages = take_all(outbox)
    ended = next(index for index, message in enumerate(messages) if message.run == EXITED)
    assert told(messages[:ended], "a-1") == [2, 3]
    assert ended < 10, "whatever else there is to tell"
    assert told(messages, "much-1") == list(range(1, UNCONFIRMED_REPORTS + 1)), "the rest waits for the broker's word"


def test_an_exit_does_not_overtake_reports_that_wait_for_the_brokers_word() -> None:
    facts = Facts()
    facts.report("a-1", UNCONFIRMED_REPORTS + 1)
    outbox, _ = make_outbox(facts)
    outbox.begin({"a-1": 0}, [EXITED])
    assert not [message for message in take_all(outbox) if message.HasField("run")]
    outbox.confirm({"a-1": 10})
    last = take_all(outbox)
    assert (told(last, "a-1"), last[-1].run) == ([UNCONFIRMED_REPORTS + 1], EXITED)


def test_nothing_is_told_of_runs_that_the_broker_does_not_know() -> None:
    facts = Facts()
    facts.report("a-1", 5)
    outbox, reporter = make_outbox(facts)
    outbox.begin({}, [EXITED])
    reporter.progress_made("a-1")
    assert take_all(outbox) == []


def test_what_was_not_said_yet_is_said_as_it_is_now() -> None:
    outbox, reporter = make_outbox(Facts())
    for _ in range(5000):
        reporter.run_changed(RUNNING)
        reporter.serving_changed(nodes_pb2.ServingStatus(http="old"))
    reporter.serving_changed(nodes_pb2.ServingStatus(http="new"))
    messages = take_all(outbox)
    assert [message.WhichOneof("message") for message in messages] == ["run", "serving"]
    assert messages[-1].serving.http == "new"


# --- Output -----------------------------------------------------------------------------------------------------------


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


async def test_output_that_grows_is_sent_but_never_before_a_report(log: RunLog) -> None:
    log.append(b"x" * 10_000_000)
    facts = Facts({"a-1": log})
    facts.report("a-1", 1)
    outbox, reporter = make_outbox(facts)
    outbox.begin({"a-1": 1}, ())
    outbox.know_output("a-1", 0)
    assert (await outbox.get()).HasField("log")
    facts.report("a-1", 1)
    reporter.progress_made("a-1")
    assert told([await outbox.get()], "a-1") == [2]
    take_all(outbox)
    async with Supervisor() as tasks:
        tasks.start("output", outbox.gather_output())
        log.append(b"more")
        reporter.output_grew()
        (chunk,) = await take(outbox, lambda message: message.HasField("log"))
        assert (chunk.log.offset_bytes, chunk.log.data) == (10_000_000, b"more")
        tasks.cancel_all()


async def test_without_a_stream_nothing_is_kept_and_nothing_fails() -> None:
    reporter = Reporter()
    reporter.run_changed(RUNNING)
    reporter.run_changed(EXITED)
    reporter.output_grew()
    reporter.progress_made("a-1")
    reporter.delivery_changed(nodes_pb2.DeliveryStatus())
    reporter.serving_changed(nodes_pb2.ServingStatus())
    await reporter.wait_said()


async def test_waiting_until_all_is_said(log: RunLog) -> None:
    async with shipping(log) as (outbox, reporter):
        reporter.run_changed(EXITED)
        async with asyncio.timeout(90), Supervisor() as tasks:
            waiting = tasks.start("waits", reporter.wait_said())
            sending = tasks.start("sends", _send_all(outbox))
            await waiting
            sending.cancel()
    reporter.detach()
    await reporter.wait_said()


async def _send_all(outbox: Outbox) -> None:
    while True:
        await outbox.get()
