"""The best model of a training that ends without all of its tiers, from the script to the endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of
from tiercel import JobState
from tiercel.broker.client.spec_file import parse_spec

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

LINEAR = Path(__file__).parents[2] / "testing" / "scripts" / "linear.py"


async def test_a_training_that_ends_delivers_its_best_model(product: Product) -> None:
    spec = {"endpoint": "line", "script": str(LINEAR), "metric": "accuracy", "tiers": [0.5, 2.0]}
    async with client_of(product, "alice") as alice:
        handle = await alice.submit(parse_spec({**spec, "arguments": ["--epochs", "12"], "max_epochs": 12}))
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.MISSED, job.reason
        (endpoint,) = await alice.list_endpoints()
        assert job.best_value is not None
        first, best = endpoint.versions
        assert (first.version, best.version, endpoint.live_version) == (1, 2, 2)
        assert best.value == pytest.approx(job.best_value)
        log = b"".join([chunk async for chunk in handle.logs()])
        assert b"did not take all reports and models" not in log
