"""A job of two ranks in the whole product: it delivers, loses a rank, goes on from its checkpoint, and is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

import psutil
import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, SCRIPTS, client_of, digits_job, tiercel
from tiercel import JobState, Resources, Script
from tiercel.broker.client import JobHandle, ProgressEvent, TierEvent
from tiercel.core.tiers import TierState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]


async def ranks_of(product: Product, handle: JobHandle) -> dict[int, psutil.Process]:
    """The job's ranks as its log names them, of the run that is newest."""
    log = (await tiercel("logs", handle.id, state_dir=product.state_dir, tenant="ranks")).output
    named = re.findall(r"rank (\d) of 2 is process (\d+), 1 threads", log)[-2:]
    return {int(number): psutil.Process(int(pid)) for number, pid in named}


async def test_two_ranks_deliver_fail_go_on_and_are_stopped(product: Product) -> None:
    spec = digits_job(
        "ranks",
        (0.7, 2.0),  # the second one is out of reach
        module="",
        script=Script("ranks.py", (SCRIPTS / "ranks.py").read_bytes()),
        arguments=("--epochs", "5000", "--step-sleep-seconds", "0.02"),
        resources=Resources(cpu_cores=2.0, memory_bytes=2 * 1024**3),
        max_epochs=5000,
        ranks=2,
    )
    async with client_of(product, "ranks") as client, asyncio.timeout(2 * JOB_SECONDS):
        handle = await client.submit(spec)
        async for event in handle.events():
            if isinstance(event, TierEvent) and event.tier.state is TierState.DELIVERED:
                break
        inputs = json.dumps({"input": [[1.0] * 6, [-1.0] * 6]})
        answer = await tiercel("infer", "ranks", "--json", state_dir=product.state_dir, tenant="ranks", text=inputs)
        assert answer.exit_code == 0, answer.errors

        ranks = await ranks_of(product, handle)
        assert set(ranks) == {0, 1}
        os.kill(ranks[1].pid, signal.SIGKILL)
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.FAILED
        assert job.log_tail.strip().endswith(
            f"rank 1 (process {ranks[1].pid}) was ended by SIGKILL, and the others were ended]"
        )
        assert not ranks[0].is_running()
        done = job.epoch

        assert (await tiercel("resume", handle.id, state_dir=product.state_dir, tenant="ranks")).exit_code == 0
        async for event in handle.events():
            if isinstance(event, ProgressEvent) and event.epoch > done:
                break
        ranks = await ranks_of(product, handle)
        await handle.cancel()
        assert (await handle.wait(JOB_SECONDS)).state is JobState.CANCELLED
        log = (await tiercel("logs", handle.id, state_dir=product.state_dir, tenant="ranks")).output
    assert "going on after epoch" in log
    assert "rank 0 leaves, stopping: True" in log
    assert "rank 1 leaves, stopping: True" in log
    assert not any(rank.is_running() for rank in ranks.values())
