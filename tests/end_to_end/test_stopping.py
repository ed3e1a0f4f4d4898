"""Stopping the product leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, tiercel
from tiercel.broker.client import ProgressEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]


async def _submit_and_wait_until_it_trains(product: Product) -> None:
    async with client_of(product) as alice, asyncio.timeout(JOB_SECONDS):
        handle = await alice.submit(digits_job(targets=(0.5, 0.99999)))
        async for event in handle.events():
            if isinstance(event, ProgressEvent):
                return
    raise AssertionError("the job ended before it could be stopped")


async def _cancel(product: Product) -> None:
    async with client_of(product) as alice:
        (job,) = [job for job in await alice.list_jobs() if not job.state.is_final]
        await alice.cancel_job(job.id)
        await alice.job(job.id).wait(JOB_SECONDS)


async def test_no_process_is_left_when_up_is_stopped_in_mid_run_nor_by_down_when_it_was_killed(
    product: Product,
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        await _submit_and_wait_until_it_trains(product)
        # up itself, the agent, the inference server, its verifier, and the training.
        assert len(product.left_over()) >= 4
        assert await product.stop(number) == 0
        assert product.left_over() == []
        await product.start()
        await _cancel(product)
    await _submit_and_wait_until_it_trains(product)
    await product.kill()
    assert len(product.left_over()) >= 3
    stopped = await tiercel("down", state_dir=product.state_dir)
    assert stopped.exit_code == 0, stopped.errors
    assert product.left_over() == []
