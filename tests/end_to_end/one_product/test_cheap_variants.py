"""A job with variants: its version answers as those that are worth it, and everybody is told how good they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, post_json, tiercel
from tiercel import Client, JobState
from tiercel.trainer_agent.workloads.data import load_digits

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

QUESTION = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.5] * 64}]}


async def test_the_versions_of_a_job_have_cheap_variants(product: Product, tmp_path: Path) -> None:
    spec = digits_job(
        "int8",
        targets=(0.9,),
        arguments=("--width", "1024"),
        variants=("fp32", "int8", "fp16"),
        endpoint_objective_seconds=20.0,
    )
    async with client_of(product, "int8") as client:
        handle = await client.submit(spec)
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        version = (await client.models.list("int8"))[-1]
        int8, fp16 = version.cheap_variants
        assert int8.shipped, int8.reason
        assert int8.made == "static, calibrated on 128 rows"
        assert fp16.made == "weights in float16"
        assert fp16.shipped or "not faster where it was made" in fp16.reason
        assert version.value is not None
        assert int8.value is not None
        assert fp16.value is not None
        assert int8.value >= version.value - 0.01
        url = f"http://{product.addresses['serving_http']}/v2/models/int8"
        status, content = await post_json(f"{url}/infer", QUESTION | {"parameters": {"timeout": 20_000_000}})
        assert status == 200, content
        told = {"fp32": version.value, "int8": int8.value, "fp16": fp16.value}[content["parameters"]["variant"]]
        assert content["parameters"]["accuracy"] == told
        assert content["model_version"] == str(version.version)
        shown = await tiercel("models", "show", "int8", state_dir=product.state_dir, tenant="int8")
        assert "times as fast" in shown.output
        await _check_deployed_file(client, product, tmp_path)


async def _check_deployed_file(client: Client, product: Product, tmp_path: Path) -> None:
    """The same model as a file that somebody deploys, with rows, has one as well."""
    file, rows = await client.models.pull("int8", None, tmp_path), tmp_path / "rows.npz"
    np.savez(rows, input_input=load_digits().x_test)
    version = await client.deploy(file, "file", accuracy=0.95, calibration=rows, objective_seconds=20.0)
    (int8,) = version.cheap_variants
    assert int8.shipped, int8.reason
    assert int8.value is not None
    assert 0.94 <= int8.value <= 0.95
    url = f"http://{product.addresses['serving_http']}/v2/models/file"
    status, content = await post_json(f"{url}/infer", QUESTION | {"parameters": {"timeout": 20_000_000}})
    assert status == 200, content
    told = {"fp32": 0.95, "int8": int8.value}[content["parameters"]["variant"]]
    assert content["parameters"]["accuracy"] == told
    words = ("deploy", str(file), "--endpoint", "file", "--accuracy", "0.96", "--calibration", str(rows))
    both = ("--cheap-variant", "int8", "--cheap-variant", "fp16")
    deployed = await tiercel(*words, *both, state_dir=product.state_dir, tenant="int8")
    assert deployed.exit_code == 0, deployed.errors
    assert "Its int8 model is shipped" in deployed.output
    assert "Its fp16 model is " in deployed.output
