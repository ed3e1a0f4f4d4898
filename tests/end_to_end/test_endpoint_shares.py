"""Live brokers move CPU towards endpoints whose answers come late, from those that can wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, SCRIPTS, client_of, digits_job, get_json, tiercel
from tiercel import Client, JobState, Script
from tiercel.core.endpoint_views import EndpointInfo

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

# Half of what a faster endpoint uses is taken at once, and often, so that nobody has to wait for the end.
DQOES = {"TIERCEL_POLICY": "dqoes", "TIERCEL_POLICY_OPTIONS": json.dumps({"interval": 1.0, "beta": 0.5})}
CALLERS = 3


@pytest.fixture
async def product(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Product]:
    options = ("--runtime", "process", "--tenant", "alice")
    variables = {"TIERCEL_HEARTBEAT_SECONDS": "1", **request.param}
    async with Product(tmp_path / "state", tmp_path / "up.log", options, variables) as running:
        yield running


@contextlib.asynccontextmanager
async def load(product: Product, endpoint: str) -> AsyncIterator[None]:
    """Ask an endpoint all the time, a few rows at a time."""
    address = f"http://{product.addresses['serving_http']}/v2/models/{endpoint}"
    _, metadata = await get_json(address)
    tensor = {"name": metadata["inputs"][0]["name"], "datatype": "FP32", "shape": [8, 6], "data": [0.5] * 48}

    async def ask() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.post(f"{address}/infer", json={"inputs": [tensor]}) as response:
                    assert response.status == 200, await response.text()

    callers = [asyncio.create_task(ask()) for _ in range(CALLERS)]
    try:
        yield
        assert not any(caller.done() for caller in callers)
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


async def deliver(client: Client, endpoint: str, objective_seconds: float) -> None:
    script = Script("wide.py", (SCRIPTS / "wide.py").read_bytes())
    spec = digits_job(
        endpoint, (0.5,), module="", script=script, arguments=(), endpoint_objective_seconds=objective_seconds
    )
    job = await (await client.submit(spec)).wait(JOB_SECONDS)
    assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"


async def served(product: Product) -> dict[str, dict[str, Any]]:
    """What the inference server counted and was told, by model."""
    _, content = await get_json(f"http://{product.addresses['serving_http']}/v2/usage")
    return {line["name"]: line for line in content["models"]}


async def moved(product: Product, client: Client) -> dict[str, EndpointInfo]:
    """The endpoints, once the one that can wait gets well less CPU and answers later than the one that cannot."""
    async with asyncio.timeout(JOB_SECONDS):
        while True:
            before = await served(product)
            await asyncio.sleep(2)
            after = await served(product)
            grown = {name: after[name]["cpu_seconds"] - before[name]["cpu_seconds"] for name in after}
            lax, strict = (_mean_delay(before[name], after[name]) for name in ("lax", "strict"))
            if lax and strict and lax > 2 * strict and grown["strict"] > 2 * grown["lax"]:
                return {endpoint.name: endpoint for endpoint in await client.list_endpoints()}


@pytest.mark.parametrize("product", [DQOES], indirect=True)
async def test_cpu_moves_from_the_endpoint_that_can_wait_to_the_one_that_cannot(product: Product) -> None:
    async with client_of(product, "alice") as alice:
        await asyncio.gather(deliver(alice, "strict", 1e-4), deliver(alice, "lax", 100.0))
        async with load(product, "strict"), load(product, "lax"):
            endpoints = await moved(product, alice)
            told = await served(product)
        listed = await tiercel("endpoints", state_dir=product.state_dir, tenant="alice")
        explained = await tiercel("explain", "--endpoint", "strict", state_dir=product.state_dir, tenant="alice")
        first = {name: (await alice.explain_endpoint(name)).decisions[-1].share.reason for name in ("lax", "strict")}
    lax, strict = endpoints["lax"], endpoints["strict"]
    assert lax.share is not None
    assert strict.share is not None
    assert lax.share.cpu_weight < strict.share.cpu_weight
    assert told["lax"]["cpu_cap_cores"] < told["strict"]["cpu_cap_cores"]
    assert (lax.objective_seconds, strict.objective_seconds) == (100.0, 1e-4)
    assert "faster than its objective" in lax.share.reason
    assert "slower than its objective" in strict.share.reason
    assert lax.requests_per_second is not None
    assert lax.requests_per_second > 0
    assert "of 1e+05 ms" in listed.output
    # Already what was decided first, after one interval, went the right way.
    assert "gives CPU" in first["lax"]
    assert "gets what others leave" in first["strict"]
    assert "slower than its objective" in explained.output
    # The server judges by the objectives; the broker was told what it found.
    assert (told["lax"]["objective_seconds"], told["strict"]["objective_seconds"]) == (100.0, 1e-4)
    assert told["strict"]["windows"][0]["in_objective"] < 0.5
    assert lax.windows[0].in_objective == 1.0
    assert (strict.in_objective, lax.in_objective) == (0.0, 1.0)
    assert strict.windows[0].p50_seconds is not None
    assert strict.windows[0].p99_seconds is not None
    assert 1e-4 < strict.windows[0].p50_seconds <= strict.windows[0].p99_seconds


def _mean_delay(before: dict[str, Any], after: dict[str, Any]) -> float | None:
    answers = after["answers"] - before["answers"]
    return (after["delay_seconds"] - before["delay_seconds"]) / answers if answers else None
