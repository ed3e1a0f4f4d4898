"""The broker is killed again and again while runs report all the time: ``python -m benchmarks.faults.reconnect``.

The broker is a process of its own, the agent's end is its real connection, outbox and kept reports; what reports are
numbers instead of scripts. Memory is bounded by what the agent keeps, time by ``DEADLINE_SECONDS`` for each step.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from testing.brokers import Tenant, broker_process, node_token, tenant_of, tenant_token
from testing.free_ports import free_port
from testing.until import until
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.stream import BrokerConnection
from tiercel.trainer_agent.reports.kept import MAX_REPORTS, KeptReports
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import Goal
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import PROTOCOL, jobs_pb2, nodes_pb2

DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.02
NODES_ADDRESS = "nodes-address"
GOAL = Goal("accuracy", smaller_is_better=False, targets=())


@dataclass(frozen=True, slots=True)
class Figures:
    """What was seen."""

    runs: int  # how many reported
    reports_per_second: float  # of each
    kills: int  # how often the broker was killed
    reports: int  # all that were made
    # Reports that were not made, as their run had 1,000 waiting: of more the agent keeps a selection only.
    held_back: int
    lost: int  # reports that the broker does not have in the end
    twice: int  # reports that it counted twice
    connections: int  # streams that were opened; one for each life of the broker is right
    # From the moment in which the broker listened again: until it had every report made until then.
    back_seconds: list[float]
    cancel_seconds: float  # how long a job took to be cancelled that was asked for just after the last return
    peak_mib: float  # most memory of this process, the agent's end


@dataclass
class ReportingNode:
    """A node whose runs report, one number after the other: the connection's node and its facts of runs."""

    reporter: Reporter
    most: int
    connections: int = 0
    kept: dict[str, KeptReports] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    ends: dict[str, nodes_pb2.RunStatus] = field(default_factory=dict)
    held_back: int = 0

    # What the connection asks for, see ``Node`` and ``RunFacts`` there.

    def hello(self) -> nodes_pb2.NodeHello:
        """What it is."""
        return nodes_pb2.NodeHello(
            node_id="n1",
            cpu_cores=64.0,
            memory_bytes=1 << 40,
            runtimes=["process"],
            runs=[self.ends.get(run_id, _running(run_id)) for run_id in self.kept],
            protocol=PROTOCOL,
            instance="0123456789abcdef",
        )

    def heartbeat(self) -> nodes_pb2.Heartbeat:
        """That it is there."""
        return nodes_pb2.Heartbeat(number=1)

    def ended(self) -> Sequence[nodes_pb2.RunStatus]:
        """How runs ended."""
        return list(self.ends.values())

    def note_welcome(self, welcome: nodes_pb2.Welcome) -> None:
        """A stream is open."""
        self.connections += 1

    def note_taken(self, taken: nodes_pb2.Taken) -> None:
        """The broker has these for good."""
        self.taken.update(taken.reports)

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Begin and end runs."""
        for run in wanted.runs:
            if run.run_id not in self.kept:
                self.kept[run.run_id], self.made[run.run_id] = KeptReports(GOAL), 0
                self.reporter.run_changed(_running(run.run_id))
            if run.stop and run.run_id not in self.ends:
                exited = nodes_pb2.RunStatus(run_id=run.run_id, state=nodes_pb2.RUN_STATE_EXITED, exit_code=0)
                self.ends[run.run_id] = exited
                self.reporter.run_changed(exited)

    def log(self, run_id: str) -> RunLog | None:
        """None has output."""
        return None

    def reports(self, run_id: str) -> KeptReports | None:
        """What a run has reported."""
        return self.kept.get(run_id)

    def report_all(self) -> None:
        """Each run that lives reports once, unless as many as are kept in full wait for the broker already."""
        for run_id in self.kept.keys() - self.ends.keys():
            if self.made[run_id] >= self.most:
                continue
            if self.made[run_id] - self.taken.get(run_id, 0) >= MAX_REPORTS:
                self.held_back += 1
                continue
            number = self.made[run_id] = self.made[run_id] + 1
            progress = nodes_pb2.Progress(run_id=run_id, sequence=number, epoch=number, metrics={"accuracy": 0.1})
            progress.at.FromNanoseconds(time.time_ns())
            self.kept[run_id].add(progress)
            self.reporter.progress_made(run_id)


async def attack(
    folder: Path,
    *,
    runs: int = 20,
    per_second: float = 10.0,
    kills: int = 10,
    away_seconds: float = 5.0,
    most: int = 1900,
) -> Figures:
    """Kill a broker while runs report.

    Args:
        folder: For its state.
        runs: How many report; at most 20, the tenant's quota.
        per_second: How often each does.
        kills: How often the broker is killed.
        away_seconds: How long it stays away each time.
        most: Reports that a run makes in all; the broker keeps 2,000 of each.

    Raises:
        TimeoutError: A step takes longer than ``DEADLINE_SECONDS``.
    """
    port = free_port()
    reporter = Reporter()
    node = ReportingNode(reporter, most)
    connection = BrokerConnection(
        dialler=LocalDialler((folder / NODES_ADDRESS).read_text, lambda: node_token(folder)),
        node=node,
        reporter=reporter,
        facts=node,
    )
    back: list[float] = []
    async with Supervisor() as tasks:
        async with _broker(folder, port), _tenant(folder, port) as tenant:
            tasks.start("broker", connection.run())
            jobs = [await tenant.submit(f"e{number}", report_timeout_seconds=3600.0) for number in range(runs)]
            await until(lambda: len(node.kept) == runs, seconds=DEADLINE_SECONDS)
            reporting = tasks.start("reports", _report(node, per_second))
            await asyncio.sleep(1 / per_second)
        for _ in range(kills):  # leaving the block has killed it
            await asyncio.sleep(away_seconds)
            back.append(await _back_seconds(node, folder, port))
        await asyncio.sleep(away_seconds)
        async with _broker(folder, port), _tenant(folder, port) as tenant:
            await until(lambda: node.connections > 1 + kills, seconds=DEADLINE_SECONDS)
            began = time.monotonic()
            await _cancel(tenant, jobs[0].id)
            cancel_seconds = round(time.monotonic() - began, 2)
            reporting.cancel()
            due = {run_id: made for run_id, made in node.made.items() if not run_id.startswith(jobs[0].id)}
            await _wait_told(tenant, due)
            lost, twice = await _compare(tenant, due)
        tasks.cancel_all()
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    reports = (sum(node.made.values()), node.held_back, lost, twice)
    return Figures(runs, per_second, kills + 1, *reports, node.connections, back, cancel_seconds, peak)


def _running(run_id: str) -> nodes_pb2.RunStatus:
    return nodes_pb2.RunStatus(run_id=run_id, state=nodes_pb2.RUN_STATE_RUNNING)


async def _back_seconds(node: ReportingNode, folder: Path, port: int) -> float:
    """One more life of the broker: how long it takes until it knows all that was reported while it was away."""
    known = node.connections
    async with _broker(folder, port), _tenant(folder, port) as tenant:
        began, due = time.monotonic(), dict(node.made)
        await until(lambda: node.connections > known, seconds=DEADLINE_SECONDS)
        await _wait_told(tenant, due)
        return round(time.monotonic() - began, 2)


async def _report(node: ReportingNode, per_second: float) -> None:
    while True:
        node.report_all()
        await asyncio.sleep(1 / per_second)


async def _wait_told(tenant: Tenant, due: dict[str, int]) -> None:
    """Wait until the broker has the last report that was due of each run."""
    for run_id, made in due.items():
        await _wait_job(tenant, run_id.rpartition("-")[0], partial(_has_epoch, made))


def _has_epoch(epoch: int, job: jobs_pb2.Job) -> bool:
    return job.epoch >= epoch


async def _cancel(tenant: Tenant, job_id: str) -> None:
    await tenant.cancel(job_id)
    await _wait_job(tenant, job_id, lambda job: job.state == jobs_pb2.JOB_STATE_CANCELLED)


async def _compare(tenant: Tenant, due: dict[str, int]) -> tuple[int, int]:
    """How many reports are missing in the broker's book, and how many are there twice."""
    lost = twice = 0
    async with asyncio.timeout(DEADLINE_SECONDS):
        for run_id, made in due.items():
            epochs: list[int] = []
            job_id = run_id.rpartition("-")[0]
            async for event in tenant.events(job_id):
                if event.HasField("progress_made"):
                    epochs.append(event.progress_made.epoch)
                    if event.progress_made.epoch >= made:
                        break
            lost += len(set(range(1, made + 1)) - set(epochs))
            twice += len(epochs) - len(set(epochs))
    return lost, twice


async def _wait_job(tenant: Tenant, job_id: str, condition: Callable[[jobs_pb2.Job], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition(await tenant.get(job_id)):  # noqa: ASYNC110 - as any client would ask
            await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def _broker(folder: Path, port: int) -> AsyncIterator[None]:
    """A broker in a process of its own, killed at the end; where agents reach it is in a file."""
    async with broker_process(folder, port) as broker:
        (folder / NODES_ADDRESS).write_text(broker.nodes)
        yield


@contextlib.asynccontextmanager
async def _tenant(folder: Path, port: int) -> AsyncIterator[Tenant]:
    async with tenant_of(f"127.0.0.1:{port}", tenant_token(folder)) as tenant:
        yield tenant


def main() -> None:
    """Run the attack as the issue of a dead broker has it, and print what was seen."""
    with tempfile.TemporaryDirectory(prefix="tiercel-reconnect-") as folder:
        figures = asyncio.run(attack(Path(folder)))
    print(json.dumps(asdict(figures), indent=2))
    if figures.lost or figures.twice or figures.connections != figures.kills + 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
