"""Scripts that go wrong: the job says so in plain words, others are untouched, an older version keeps serving."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, faulty_job, post_json, serving_index
from tiercel import JobState, TierState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SILENCE_SECONDS = 6.0
EASY, OUT_OF_REACH = 0.05, 0.99999

FAULTS = {
    "crash": (OUT_OF_REACH, "code 1", "the training data is not what it should be"),
    "nan": (OUT_OF_REACH, "nan", "accuracy=nan"),
    "unexportable": (EASY, "export", ""),
    "random": (EASY, "disagree", ""),
}
"""For each fault: a target, what the job's reason says, and what is in the last lines of its output."""


async def test_faults_are_told_and_touch_nobody_else(product: Product) -> None:
    async with client_of(product, "faulty") as client, client_of(product, "neighbour") as neighbour:
        good = await neighbour.submit(digits_job("good"))
        faulty = {
            fault: await client.submit(faulty_job(fault, fault, target)) for fault, (target, _, _) in FAULTS.items()
        }
        hung = await client.submit(faulty_job("hang", "hang", OUT_OF_REACH, report_timeout_seconds=SILENCE_SECONDS))
        jobs = dict(
            zip(faulty, await asyncio.gather(*(each.wait(JOB_SECONDS) for each in faulty.values())), strict=True)
        )
        for fault, (_, reason, output) in FAULTS.items():
            job = jobs[fault]
            assert job.state is JobState.FAILED, f"{fault}: {job.state} {job.reason}"
            assert reason.lower() in job.reason.lower(), f"{fault}: {job.reason}"
            assert "Traceback" not in job.reason
            assert output in job.log_tail, f"{fault}: {job.log_tail}"
            assert all(tier.state is not TierState.DELIVERED for tier in job.tiers)
        job = await hung.wait(JOB_SECONDS)
        assert job.state is JobState.FAILED
        assert f"report_timeout_seconds is {SILENCE_SECONDS:.0f}" in job.reason, job.reason
        fine = await good.wait(JOB_SECONDS)
        assert (fine.state, fine.attempts) == (JobState.COMPLETED, 1), f"{fine.reason}\n{fine.log_tail}"
    ready = {name for (name, _), state in (await serving_index(product)).items() if state == "READY"}
    assert ready & {"good", "hang", *FAULTS} == {"good"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def version_1(product: Product) -> str:
    """An endpoint that answers with its first version."""
    async with client_of(product, "faulty") as client:
        job = await (await client.submit(digits_job("shared", (0.70,)))).wait(JOB_SECONDS)
    assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
    return "shared"


@pytest.mark.parametrize(("fault", "target"), [("lying", 0.985), ("crash", OUT_OF_REACH)])
async def test_an_older_version_keeps_serving(product: Product, version_1: str, fault: str, target: float) -> None:
    async with client_of(product, "faulty") as client:
        failed = await (await client.submit(faulty_job(fault, version_1, target))).wait(JOB_SECONDS)
        assert failed.state is JobState.FAILED, failed.reason
        (endpoint,) = [each for each in await client.list_endpoints() if each.name == version_1]
        assert endpoint.live_version == 1
    url = f"http://{product.addresses['serving_http']}/v2/models/{version_1}/infer"
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.5] * 64}]}
    status, answer = await post_json(url, body)
    assert (status, answer["model_version"]) == (200, "1"), answer
