"""A broker whose disk is full for longer than a lease: ``python -m benchmarks.faults.full_disk`` (as root).

The real broker, in a process of its own, has its state on a file system of 64 MiB. An agent reports ten times a second.
The disk is filled; meanwhile a tenant asks for what has to be written and for what is only read. Then room is made.
Prints figures as JSON; exit code 1 if a call was slow or answered wrongly, if a report was lost, or if the broker did
not go on. At most a minute, and 64 MiB of memory for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil

from testing.brokers import Tenant, broker_process, node_token, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.small_disk import fill, small_disk
from tiercel.core.jobs import Script

DISK_BYTES = 64 * 1024 * 1024
# Longer than a node's lease, which is 10 s.
FULL_SECONDS = 15.0
REPORT_SECONDS = 0.1
ASK_SECONDS = 0.5
# Until all that was reported is there, once there is room.
GO_ON_SECONDS = 30.0
# The longest that a call may take while the disk is full.
PROMPT_SECONDS = 2.0
# Needs more room than the database's file has left within itself.
LARGE = Script("train.py", b"#" * 256 * 1024)


@dataclass
class Figures:
    """What was seen; seconds each, where not said otherwise."""

    refused: int = 0
    wrongly_answered: list[str] = field(default_factory=list)
    longest_refusal: float = 0.0
    read: int = 0
    longest_read: float = 0.0
    reports: int = 0
    reports_kept: int = 0
    went_on_after: float = 0.0
    streams: int = 0
    broker_alive: bool = False
    memory_grew_mib: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether all held that has to hold."""
        return (
            self.broker_alive
            and self.refused > 0
            and self.read > 0
            and not self.wrongly_answered
            and max(self.longest_refusal, self.longest_read) <= PROMPT_SECONDS
            and self.reports_kept == self.reports
            and 0 < self.went_on_after <= GO_ON_SECONDS
        )


async def attack(full_seconds: float = FULL_SECONDS) -> Figures:
    """Fill the disk of a broker for so long; returns what was seen."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as parent, small_disk(Path(parent) / "disk", DISK_BYTES) as state_dir:
        agent, token = ScriptedAgent(node_token(state_dir)), tenant_token(state_dir)
        async with (
            broker_process(state_dir) as (running, address, nodes, _),
            tenant_of(address, token) as alice,
            asyncio.timeout(full_seconds + 90),
            asyncio.TaskGroup() as group,
        ):
            process = psutil.Process(running.pid)
            stream = group.create_task(_keep_connected(agent, nodes, figures))
            job = await alice.submit()
            run_id = f"{job.id}-1"
            await agent.wait_run(run_id)
            await alice.wait(job.id, lambda job: job.node_id != "")
            memory = process.memory_info().rss
            reporting = group.create_task(_report(agent, run_id))
            filler = fill(state_dir)
            await _ask(alice, job.id, figures, time.monotonic() + full_seconds)
            figures.memory_grew_mib = round((process.memory_info().rss - memory) / 2**20, 1)
            reporting.cancel()
            figures.reports = len(agent.runs[run_id].values)
            filler.unlink()
            await _wait_gone_on(alice, job.id, figures)
            figures.broker_alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            stream.cancel()
    return figures


async def _keep_connected(agent: ScriptedAgent, address: str, figures: Figures) -> None:
    async def beat() -> None:
        while True:
            await asyncio.sleep(1.0)
            agent.heartbeat()

    async with asyncio.TaskGroup() as group:
        group.create_task(beat())
        while True:
            figures.streams += 1
            await agent.run(address)
            await asyncio.sleep(REPORT_SECONDS)


async def _report(agent: ScriptedAgent, run_id: str) -> None:
    while True:
        agent.report(run_id, 0.1)
        await asyncio.sleep(REPORT_SECONDS)


async def _ask(alice: Tenant, job_id: str, figures: Figures, until: float) -> None:
    """Ask for what needs a write, and for what does not, again and again."""
    number = 0
    while time.monotonic() < until:
        number += 1
        code, seconds = await _timed(alice.submit(f"large{number}", script=LARGE))
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            figures.refused += 1
            figures.longest_refusal = max(figures.longest_refusal, round(seconds, 3))
        else:
            figures.wrongly_answered.append(f"submit: {code.name}")
        for call in (alice.get(job_id), alice.nodes(), alice.endpoints()):
            code, seconds = await _timed(call)
            figures.read += 1
            figures.longest_read = max(figures.longest_read, round(seconds, 3))
            if code is not grpc.StatusCode.OK:
                figures.wrongly_answered.append(f"read: {code.name}")
        await asyncio.sleep(ASK_SECONDS)


async def _timed(call: Awaitable[object]) -> tuple[grpc.StatusCode, float]:
    begun = time.monotonic()
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), time.monotonic() - begun
    return grpc.StatusCode.OK, time.monotonic() - begun


async def _wait_gone_on(alice: Tenant, job_id: str, figures: Figures) -> None:
    begun = time.monotonic()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GO_ON_SECONDS):
            while not await _has_gone_on(alice, job_id, figures):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            figures.went_on_after = round(time.monotonic() - begun, 3)
    figures.reports_kept = (await alice.get(job_id)).epoch


async def _has_gone_on(alice: Tenant, job_id: str, figures: Figures) -> bool:
    if (await alice.get(job_id)).epoch < figures.reports:
        return False
    return (await _timed(alice.submit("after", script=LARGE)))[0] is grpc.StatusCode.OK


def main() -> None:
    """Print the figures."""
    if os.geteuid() != 0:
        sys.exit("A file system is mounted for this: run it as root.")
    figures = asyncio.run(attack())
    print(json.dumps({**figures.__dict__, "is_well": figures.is_well}, indent=2))
    sys.exit(not figures.is_well)


if __name__ == "__main__":
    main()
