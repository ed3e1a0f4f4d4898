"""A job with variants fp32 and int8: its version answers as both, and everybody is told how good they are."""

from __future__ import annotations

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, post_json, tiercel
from tiercel import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

QUESTION = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.5] * 64}]}


async def test_the_versions_of_a_job_have_an_int8_model(product: Product) -> None:
    spec = digits_job(
        "int8",
        targets=(0.9,),
        arguments=("--width", "1024"),
        variants=("fp32", "int8"),
        endpoint_objective_seconds=20.0,
    )
    async with client_of(product, "int8") as client:
        handle = await client.submit(spec)
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        version = (await client.models.list("int8"))[-1]
        int8 = version.int8
        assert int8 is not None
        assert int8.shipped, int8.reason
        assert int8.made == "static, calibrated on 128 rows"
        assert version.value is not None
        assert int8.value is not None
        assert int8.value >= version.value - 0.01
        url = f"http://{product.addresses['serving_http']}/v2/models/int8"
        status, content = await post_json(f"{url}/infer", QUESTION | {"parameters": {"timeout": 20_000_000}})
        assert status == 200, content
        told = {"fp32": version.value, "int8": int8.value}[content["parameters"]["variant"]]
        assert content["parameters"]["accuracy"] == told
        assert content["model_version"] == str(version.version)
        shown = await tiercel("models", "show", "int8", state_dir=product.state_dir, tenant="int8")
        assert "times as fast" in shown.output
