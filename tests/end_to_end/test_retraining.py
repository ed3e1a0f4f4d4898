"""The world turns: what answers is wrong, is trained again on the newest data, and right again; nobody is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, SCRIPTS, client_of, digits_job, running_product
from tiercel import Client, DataSet, JobState, Retrain, Script
from tiercel.core.feedback import AccuracyInUse

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

ROWS = 60
LEARNS = replace(
    digits_job("side", (0.9,)),
    script=Script("turning.py", (SCRIPTS / "turning.py").read_bytes()),
    retrain=Retrain(budget_core_hours=1.0),
    max_epochs=8,
)


async def is_right(alice: Client, turn: int, number: int) -> npt.NDArray[np.bool_]:
    """Ask of new points, and say afterwards on which side they were."""
    x = np.random.default_rng(number).standard_normal((ROWS, 6)).astype(np.float32)
    truth = (turn * x.sum(1) > 0).astype(int)
    found = await alice.infer("side", {"input": x}, request_id=f"r{number}")
    told = await alice.feedback("side", {f"r{number}": truth.tolist()})
    assert told["taken"] == 1
    right: npt.NDArray[np.bool_] = np.array(found.outputs["output"].tolist()).argmax(1) == truth
    return right


async def in_use(product: Product, version: int) -> dict[int, AccuracyInUse]:
    """How often versions were right, by the word of the broker, once it knows that of this one."""
    async with client_of(product) as alice, asyncio.timeout(JOB_SECONDS):
        while True:
            (endpoint,) = await alice.list_endpoints()
            known = {each.version: each.in_use for each in endpoint.versions if each.in_use is not None}
            if version in known:
                return known
            await asyncio.sleep(0.1)  # nodes say it once a second


async def test_a_model_that_the_world_left_behind_is_replaced_by_a_lesser_one_that_is_right(tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_text(json.dumps({"turn": 1, "noise": 0.0}))
    spec = replace(LEARNS, data=(DataSet("world", f"file://{world}"),))
    environment = {"TIERCEL_AGENT_DATA_SOURCES": f"file://{tmp_path}/"}
    async with running_product(tmp_path, environment=environment) as product, client_of(product) as alice:
        first = await (await alice.submit(spec)).wait(JOB_SECONDS)
        assert first.state is JobState.COMPLETED, first.reason
        assert (await is_right(alice, 1, 0)).mean() > 0.85

        # It turns, and nobody can know any more what one in five points will be.
        world.write_text(json.dumps({"turn": -1, "noise": 0.2}))
        async with asyncio.timeout(JOB_SECONDS):
            number, version = 0, 1
            while version == 1:
                await is_right(alice, -1, number := number + 1)
                await asyncio.sleep(0.5)  # applications come as they come
                (endpoint,) = await alice.list_endpoints()
                version = endpoint.live_version or 0
        (again,) = [job for job in await alice.list_jobs() if job.id != first.id]
        assert again.spec.labels == {"tiercel/repeats": first.id, "tiercel/retrains": "1"}
        again = await alice.job(again.id).wait(JOB_SECONDS)
        assert again.state is JobState.MISSED, "one in five cannot be known"
        (endpoint,) = await alice.list_endpoints()
        live = next(each for each in endpoint.versions if each.live)
        assert live.value is not None
        assert 0.6 < live.value < 0.9 <= (endpoint.versions[0].value or 0.0)
        assert (await is_right(alice, -1, 1000)).mean() > 0.9
        explained = (await alice.explain_endpoint("side")).endpoint
        assert explained.retraining, "whoever asked for it is told"

        told = await in_use(product, live.version)  # with it all that there is to say of earlier ones
        await product.kill()
        await product.start()
        assert (await in_use(product, 1))[1] == told[1], "a broker that knows nothing of it is told again"
