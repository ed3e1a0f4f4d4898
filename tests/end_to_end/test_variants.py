"""Two jobs feed one endpoint, each a variant of it; the broker dies in between and nothing of it is lost."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, post_json, serving_index, tiercel
from tiercel import Client, EndpointBusyError, JobInfo, JobState, TierState
from tiercel.broker.client import TierEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

# Nobody is to be given up because the machine is busy.
OBJECTIVE_SECONDS = 20.0
SMALL = digits_job(
    targets=(0.70, 0.80),
    arguments=("--width", "16", "--learning-rate", "0.3"),
    variant="small",
    endpoint_objective_seconds=OBJECTIVE_SECONDS,
)
LARGE = digits_job(targets=(0.85, 0.93), variant="large")
QUESTION = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.5] * 64}]}


async def ask(product: Product, **parameters: Any) -> dict[str, Any]:
    """Who answered."""
    url = f"http://{product.addresses['serving_http']}/v2/models/digits/infer"
    status, content = await post_json(url, QUESTION | {"parameters": parameters})
    assert status == 200, content
    said: dict[str, Any] = content["parameters"]
    return said


@asynccontextmanager
async def asked(product: Product) -> AsyncIterator[None]:
    """While it lasts, the endpoint is asked all the time, and answers."""

    async def keep_asking() -> None:
        while True:
            await ask(product)

    asking = asyncio.create_task(keep_asking())
    try:
        yield
        assert not asking.done()
    finally:
        asking.cancel()
        await asyncio.wait([asking])


async def listed(product: Product) -> dict[str, Any]:
    """The endpoint as ``tiercel endpoints --json`` has it, once it knows who answers."""
    async with asyncio.timeout(JOB_SECONDS):
        while True:
            (endpoint,) = (await tiercel("endpoints", "--json", state_dir=product.state_dir, tenant="alice")).content
            if all(variant["answered_part"] is not None for variant in endpoint["variants"]):
                found: dict[str, Any] = endpoint
                return found


def completed(job: JobInfo) -> JobInfo:
    assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
    return job


async def others_are_refused(product: Product, alice: Client) -> None:
    """While two jobs feed the variants of an endpoint."""
    with pytest.raises(EndpointBusyError, match="variant: 'large' of endpoint 'digits' is being fed"):
        await alice.submit(LARGE)
    with pytest.raises(EndpointBusyError, match=r"'digits' has variants \(large, small\)"):
        await alice.submit(digits_job())
    async with client_of(product, "bob") as bob:
        with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
            await bob.submit(digits_job(variant="third"))


async def test_two_jobs_are_variants_of_one_endpoint_and_outlive_a_killed_broker(product: Product) -> None:
    async with client_of(product) as alice:
        handles = [await alice.submit(spec) for spec in (SMALL, LARGE)]
        await others_are_refused(product, alice)
        async with asyncio.timeout(JOB_SECONDS):
            async for event in alice.events():
                if isinstance(event, TierEvent) and event.tier.state is TierState.DELIVERED:
                    break
    assert (await ask(product))["variant"] in {"small", "large"}
    await product.kill()
    assert (await ask(product))["variant"] in {"small", "large"}
    await product.start()
    async with client_of(product) as alice:
        small, large = [completed(await alice.job(handle.id).wait(JOB_SECONDS)) for handle in handles]
        versions = {job.spec.variant: [tier.version for tier in job.tiers] for job in (small, large)}
        # Two tiers that one model reaches are one version, as happens while the broker is away; the number of a version
        # that was on its way then is not used again.
        assert {version or 0 for each in versions.values() for version in each} <= {1, 2, 3, 4}
        assert not set(versions["small"]) & set(versions["large"])
        accuracies = {job.spec.variant: job.tiers[-1].delivered_value for job in (small, large)}
        most = max(value or 0.0 for value in accuracies.values())
        async with asked(product):
            endpoint = await listed(product)
            table = await tiercel("endpoints", state_dir=product.state_dir, tenant="alice")
            explained = await tiercel("explain", "--endpoint", "digits", state_dir=product.state_dir, tenant="alice")
        said = await ask(product, minimum_accuracy=most)
        pulled = [
            await alice.models.pull("digits", numbers[-1], product.state_dir / "pulled")
            for numbers in versions.values()
        ]
        told = {each.version: each.sha256 for each in await alice.models.list("digits")}
        answer = await alice.infer("digits", {"input": [[[0.5] * 8] * 8]}, minimum_accuracy=most)
    for numbers, path in zip(versions.values(), pulled, strict=True):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == told[numbers[-1] or 0]
    best = [name for name, value in accuracies.items() if value == most]  # both, where they are as good
    assert said["variant"] in best
    assert said == {"variant": said["variant"], "version": str(versions[said["variant"]][-1]), "accuracy": most}
    assert answer.variant in best
    assert answer.accuracy == most
    variants = {variant["name"]: variant for variant in endpoint["variants"]}
    assert {name: (each["live_version"], each["accuracy"]) for name, each in variants.items()} == {
        name: (versions[name][-1], accuracies[name]) for name in ("small", "large")
    }
    assert sum(each["answered_part"] for each in variants.values()) == pytest.approx(1.0)
    assert {(each["version"], each["variant"]) for each in endpoint["versions"]} == {
        (version, name) for name, numbers in versions.items() for version in numbers
    }
    assert endpoint["objective_seconds"] == OBJECTIVE_SECONDS
    assert "2 variants" in table.output
    assert "variant   large" in explained.output
    index = await serving_index(product)
    assert {(name, version) for (name, version), state in index.items() if state == "READY"} == {
        ("digits", "1"),
        ("_digits.small", str(versions["small"][-1])),
        ("_digits.large", str(versions["large"][-1])),
    }
