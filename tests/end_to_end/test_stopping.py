"""Stopping the product leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, tiercel
from tiercel import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

POLL_SECONDS = 0.1


async def _wait_until_it_trains(product: Product, attempt: int) -> None:
    """The only job does, in a run of this number."""
    seen: int | None = None
    async with client_of(product) as alice, asyncio.timeout(JOB_SECONDS):
        while True:
            (job,) = await alice.list_jobs()
            if job.state is JobState.RUNNING and job.attempts == attempt:
                seen = job.epoch if seen is None else seen
                if job.epoch > seen:
                    return
            await asyncio.sleep(POLL_SECONDS)


async def test_no_process_is_left_when_up_is_stopped_in_mid_run_nor_by_down_when_it_was_killed(
    product: Product,
) -> None:
    async with client_of(product) as alice:
        await alice.submit(digits_job(targets=(0.5, 0.99999), arguments=("--epochs", "100000"), max_epochs=100_000))
    for attempt, number in enumerate((signal.SIGINT, signal.SIGTERM), start=1):
        await _wait_until_it_trains(product, attempt)
        # The agent, the inference server, its verifier, and the training.
        assert len(product.left_over()) >= 4
        assert await product.stop(number) == 0
        assert product.left_over() == []
        await product.start()
    await _wait_until_it_trains(product, 3)
    await product.kill()
    assert len(product.left_over()) >= 3
    stopped = await tiercel("down", state_dir=product.state_dir)
    assert stopped.exit_code == 0, stopped.errors
    assert product.left_over() == []
