"""The broker dies without warning in mid-run: agent, inference server and training go on, and nothing happens twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from testing.application_process import ApplicationProcess
from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, read_pid, serving_index
from testing.until import until
from tiercel import JobState, TierState
from tiercel.broker.client import ProgressEvent, TierEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

RATE = 50.0
# It learns slowly enough that the second tier is still ahead when the first one is delivered.
SLOW = ("--step-sleep-seconds", "0.05")
MOMENTS = ("before the first tier", "while the first tier is handed over", "between tiers")


async def test_a_job_goes_on_over_three_deaths_and_delivers_each_tier_once(product: Product, tmp_path: Path) -> None:
    locks = [product.state_dir / "agent" / name for name in ("agent.lock", "serving.lock")]
    pids = [read_pid(lock) for lock in locks]
    serving = product.addresses["serving_http"]
    news: list[object] = []
    async with (
        ApplicationProcess(serving, [("digits", "digits")], RATE, tmp_path) as application,
        asyncio.TaskGroup() as group,
    ):
        following = group.create_task(application.follow(news.append))
        async with client_of(product) as alice:
            handle = await alice.submit(digits_job(targets=(0.70, 0.93), arguments=SLOW))
        for moment in MOMENTS:
            async with asyncio.timeout(JOB_SECONDS):
                await _wait_moment(product, handle.id, moment)
            await product.kill()
            # The application's news: it still gets answers, or waits for the first version, while nobody is the broker.
            enough = len(news) + 2
            await until(lambda: len(news) >= enough)  # noqa: B023 - it is waited for here
            await product.start()
        async with client_of(product) as alice:
            job = await alice.job(handle.id).wait(JOB_SECONDS)
            assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
            versions = [tier.version or 0 for tier in job.tiers]
            tiers = [event.tier async for event in alice.job(handle.id).events() if isinstance(event, TierEvent)]
            (endpoint,) = await alice.list_endpoints()
        following.cancel()
        await asyncio.wait([following])
        record = await application.stop()
    assert Counter(tier.number for tier in tiers if tier.state is TierState.DELIVERED) == {1: 1, 2: 1}
    # Where training got to the second tier while nobody was the broker, one model is delivered for both: as the version
    # of whichever was loaded first. The number of the other one is then nobody's.
    assert versions in ([1, 2], [1, 1], [2, 2])
    assert [version.version for version in endpoint.versions] == sorted(set(versions))
    assert (endpoint.versions[-1].value or 0.0) >= 0.93
    index = await serving_index(product)
    assert {version for name, version in index if name == "digits"} <= {str(version) for version in versions}
    assert index["digits", str(versions[-1])] == "READY"
    assert product.addresses["serving_http"] == serving
    assert [read_pid(lock) for lock in locks] == pids
    assert job.attempts == 1
    assert record.failed == 0, record.failures
    answered = {request.version for request in record.requests}
    assert versions[-1] in answered
    assert versions[0] in answered


async def _wait_moment(product: Product, job_id: str, moment: str) -> None:
    wanted = {
        "while the first tier is handed over": {TierState.REACHED, TierState.DELIVERED},
        "between tiers": {TierState.DELIVERED},
    }
    async with client_of(product) as alice:
        async for event in alice.job(job_id).events():
            match event:
                case ProgressEvent() if moment == "before the first tier":
                    return
                case TierEvent(tier=tier) if tier.number == 1 and tier.state in wanted.get(moment, ()):
                    return
                case _:
                    continue
    raise AssertionError("the job ended before the broker could be killed")
