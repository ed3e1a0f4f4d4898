"""A node is drained where an endpoint with variants answers: real agents and servers, asked all the time at both."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from testing.product_use import digits_job
from testing.two_nodes import JOB_SECONDS, TwoNodes, two_nodes
from testing.until import until
from tiercel import Client, JobState
from tiercel.broker.actors.node_messages import DrainSet
from tiercel.core.nodes import Drain

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

QUESTION = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.5] * 64}]}
SMALL = digits_job(targets=(0.3,), arguments=("--width", "16"), variant="small", endpoint_objective_seconds=20.0)
LARGE = digits_job(targets=(0.5,), variant="large")


async def test_all_variants_answer_on_the_other_node_and_no_request_is_lost(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, lease_seconds=8.0) as nodes, nodes.client() as alice:
        for spec in (SMALL, LARGE):
            done = await (await alice.submit(spec)).wait(JOB_SECONDS)
            assert done.state is JobState.COMPLETED, done.reason
        home = await home_of(alice)
        (other,) = {"n1", "n2"} - {home}
        answered: Counter[tuple[str, int]] = Counter()
        async with asyncio.TaskGroup() as group:
            askers = [group.create_task(keep_asking(nodes, node, answered)) for node in ("n1", "n2") for _ in range(3)]
            await until(lambda: answered[home, 200] > 20 and answered[other, 200] > 20, seconds=60)
            await nodes._service._registry.nodes[home].send(DrainSet(Drain.MOVE))
            await until(lambda: not nodes._service._registry.nodes[home].answers_for, seconds=JOB_SECONDS)
            await until(lambda: not models_at(nodes, home), seconds=JOB_SECONDS)
            before = answered.copy()
            await until(lambda: all(answered[node, 200] > before[node, 200] + 20 for node in ("n1", "n2")), seconds=60)
            for asker in askers:
                asker.cancel()
        assert {status for _, status in answered} == {200}, answered
        assert await home_of(alice) == other
        assert {path.name for path in models_at(nodes, other)} == {"digits", "_digits.small", "_digits.large"}


async def home_of(alice: Client) -> str:
    (endpoint,) = await alice.list_endpoints()
    return endpoint.node_id


def models_at(nodes: TwoNodes, node: str) -> list[Path]:
    """What a node has of the endpoint."""
    return [path for path in (nodes.folder / node / "agent" / "models").glob("*digits*") if any(path.iterdir())]


async def keep_asking(nodes: TwoNodes, node: str, answered: Counter[tuple[str, int]]) -> None:
    """Ask at one node until cancelled, once it has answered."""
    (address,) = [each.serving_http for each in nodes._service.nodes() if each.id == node]
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.post(f"http://{address}/v2/models/digits/infer", json=QUESTION) as response:
                await response.read()
                if response.status == 200 or answered[node, 200]:
                    answered[node, response.status] += 1
            await asyncio.sleep(0.002)
