"""Shares and usage of endpoints, from a scripted broker through a real agent to a real inference server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from testing import onnx_models
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import common_pb2, nodes_pb2

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent."""


@contextlib.contextmanager
def agent_with_model(folder: Path, broker: ScriptedBroker) -> Iterator[AgentProcess]:
    """An agent whose inference server has a model already."""
    onnx_models.put(folder / "state" / "agent" / "models", "line", 1, onnx_models.plus(1.0))
    with agent_process(folder / "state", broker.address) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_agent(
    shared_broker: ScriptedBroker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentProcess]:
    with agent_with_model(tmp_path_factory.mktemp("shared"), shared_broker) as running:
        yield running


def wanted(endpoint: str, weight: float, cap_cores: float = 0.0) -> nodes_pb2.WantedEndpoint:
    share = common_pb2.Share(cpu_weight=weight, cpu_cap_cores=cap_cores, reason="a test wants it")
    return nodes_pb2.WantedEndpoint(endpoint=endpoint, share=share)


async def told(broker: ScriptedBroker, endpoint: str = "line") -> dict[str, Any]:
    """What the inference server knows of an endpoint; nothing while it is away."""
    serving = broker.heard.serving()
    if serving is None:
        return {}
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{serving.http}/v2/usage") as response:
            lines = (await response.json())["models"]
    except aiohttp.ClientError:
        return {}
    return next((line for line in lines if line["name"] == endpoint), {})


async def until_told(broker: ScriptedBroker, cap_cores: float | None, weight: float) -> None:
    async with asyncio.timeout(DEADLINE):
        line: dict[str, Any] = {}
        while not line or (line["cpu_cap_cores"], line["cpu_weight"]) != (cap_cores, weight):
            line = await told(broker)
            await asyncio.sleep(0.05)  # a call each time


@pytest.fixture
def agent(broker: ScriptedBroker, tmp_path: Path) -> Iterator[AgentProcess]:
    with agent_with_model(tmp_path, broker) as running:
        yield running


async def test_shares_reach_the_server_and_outlive_it_and_the_agent(
    broker: ScriptedBroker, agent: AgentProcess, tmp_path: Path
) -> None:
    await until(broker.heard.serving, seconds=DEADLINE)
    await broker.want(endpoints=[wanted("line", 0.25, 0.5), wanted("other", 0.5)])
    await until_told(broker, 0.5, 0.25)
    state_file = agent.state_dir / "agent" / "serving.json"
    os.kill(json.loads(state_file.read_text())["pid"], 9)
    await until_told(broker, 0.5, 0.25)
    await agent.kill()
    assert (await told(broker))["cpu_cap_cores"] == 0.5
    with agent_process(tmp_path / "state", broker.address) as again:
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        await broker.want(endpoints=[wanted("line", 0.75)])
        await until_told(broker, None, 0.75)
        await broker.want()
        await until_told(broker, None, 1.0)
        await again.leave()


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_heartbeats_say_what_requests_took(shared_broker: ScriptedBroker) -> None:
    broker = shared_broker
    await until(lambda: (serving := broker.heard.serving()) and serving.versions, seconds=DEADLINE)
    address = broker.heard.serving()
    assert address is not None
    await broker.want(endpoints=[nodes_pb2.WantedEndpoint(endpoint="line", objective_seconds=1000.0)])
    async with asyncio.timeout(DEADLINE):
        while (await told(broker)).get("objective_seconds") != 1000.0:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)  # a call each time
    await until(lambda: len([m for m in broker.heard.messages if m.HasField("heartbeat")]) > 5, seconds=DEADLINE)
    assert broker.heard.usage("line") == []
    url = f"http://{address.http}/v2/models/line/infer"
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    async with aiohttp.ClientSession() as session:
        for _ in range(20):
            async with session.post(url, json=body) as response:
                assert response.status == 200
    await until(lambda: sum(usage.answers for usage in broker.heard.usage("line")) == 20, seconds=DEADLINE)
    said = broker.heard.usage("line")
    assert sum(usage.requests for usage in said) == 20
    assert sum(usage.on_time for usage in said) == 20
    assert said[-1].windows[0].answers == 20
    assert said[-1].windows[0].in_objective == 1.0
    assert 0 < said[-1].windows[0].p50_seconds <= said[-1].windows[0].p99_seconds
    assert all(usage.seconds > 0 and usage.delay_seconds > 0 and usage.cpu_seconds > 0 for usage in said)


@SHARED
async def test_a_broker_that_has_not_decided_yet_lifts_nothing(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess
) -> None:
    broker, agent = shared_broker, shared_agent
    await until(broker.heard.serving, seconds=DEADLINE)
    await broker.want(endpoints=[wanted("line", 0.25, 0.5)])
    await until_told(broker, 0.5, 0.25)
    await broker.want(wanted_run("job-1", "import time; time.sleep(600)"), endpoints=None)
    await until(lambda: broker.heard.is_running("job-1"), seconds=DEADLINE)
    # What holds is also said to a server that begins anew.
    os.kill(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"], 9)
    await until_told(broker, 0.5, 0.25)
    await broker.want()
    await until_told(broker, None, 1.0)


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_weight_becomes_a_cap_while_a_job_runs(shared_broker: ScriptedBroker) -> None:
    broker = shared_broker
    await until(broker.heard.serving, seconds=DEADLINE)
    cores = broker.heard.hellos[0].cpu_cores
    await broker.want(endpoints=[wanted("line", 0.25)])
    await until_told(broker, None, 0.25)
    run = wanted_run("weighs-1", "import time; time.sleep(600)", cpu_cores=cores)
    await broker.want(run, endpoints=[wanted("line", 0.25)])
    await until_told(broker, 0.25 * cores, 0.25)
    await broker.want(endpoints=[wanted("line", 0.25)])
    await until_told(broker, None, 0.25)
