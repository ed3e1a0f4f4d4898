"""Jobs that feed variants of one endpoint, through the agent, with the real inference server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, Heard, ScriptedBroker, wanted_delivery, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

TRAIN = ("--metric", "score", "--epochs", "100000", "--step-sleep-seconds", "0.01")
LINE = nodes_pb2.WantedEndpoint(endpoint="line", objective_seconds=20.0)
SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent, and have endpoints of their own."""
DELIVERED, FAILED = nodes_pb2.DELIVERY_STAGE_DELIVERED, nodes_pb2.DELIVERY_STAGE_FAILED


def delivery_of(run_id: str, variant: str, *, version: int, target: float = 0.5) -> nodes_pb2.WantedDelivery:
    wanted = wanted_delivery(run_id, version=version, target=target)
    wanted.variant = variant
    return wanted


async def outcome(broker: ScriptedBroker, wanted: nodes_pb2.WantedDelivery) -> nodes_pb2.DeliveryStatus:
    await until(lambda: broker.heard.outcome(wanted.delivery_id), seconds=DEADLINE)
    status = broker.heard.outcome(wanted.delivery_id)
    assert status is not None
    return status


def serving(broker: ScriptedBroker) -> nodes_pb2.ServingStatus:
    return broker.heard.serving() or nodes_pb2.ServingStatus()


def call(broker: ScriptedBroker, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{serving(broker).http}{path}", data)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except urllib.error.URLError:  # it is being started again
        return 0, {}


async def settled(broker: ScriptedBroker) -> None:
    """Until the objective is known: a busy machine is no reason to give requests up."""

    def aimed() -> float:
        status, content = call(broker, "/v2/models/line")
        return content["parameters"]["objective_seconds"] if status == 200 else 0.0

    await until(lambda: aimed() == LINE.objective_seconds, seconds=DEADLINE)


def ask(broker: ScriptedBroker, **parameters: Any) -> dict[str, Any]:
    """Who answered."""
    name = call(broker, "/v2/models/line")[1]["inputs"][0]["name"]
    tensor = {"name": name, "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}
    status, content = call(broker, "/v2/models/line/infer", {"inputs": [tensor], "parameters": parameters})
    assert status == 200, content
    said: dict[str, Any] = content["parameters"]
    return said


async def test_two_jobs_feed_variants_of_one_endpoint(broker: ScriptedBroker, tmp_path: Path, linear: str) -> None:
    first, second = wanted_run("one-1", linear, arguments=TRAIN), wanted_run("two-1", linear, arguments=TRAIN)
    small = delivery_of("one-1", "small", version=1)
    large = delivery_of("two-1", "large", version=2, target=0.85)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(first, second, deliveries=[small, large], endpoints=[LINE])
        ends = [await outcome(broker, small), await outcome(broker, large)]
        assert [end.stage for end in ends] == [DELIVERED, DELIVERED], [end.reason for end in ends]
        variants = call(broker, "/v2/models/line")[1]["parameters"]["variants"]
        found = {each["name"]: (each["version"], each["accuracy"]) for each in variants}
        assert found == {"small": ("1", ends[0].value), "large": ("2", ends[1].value)}
        best = max(ends, key=lambda end: end.value)
        await settled(broker)
        said = ask(broker, minimum_accuracy=best.value)
        assert said["accuracy"] == best.value
        assert said["variant"] in found
        versions = [
            nodes_pb2.ServedVersion(endpoint="line", variant="large", version=2),
            nodes_pb2.ServedVersion(endpoint="line", variant="small", version=1),
        ]
        await until(lambda: list(serving(broker).versions) == versions, seconds=DEADLINE)
        await agent.kill()
    broker.heard = Heard()  # what the old one said of its server is of no use any more
    # A new agent and a new server find both.
    with agent_process(tmp_path / "state", broker.address):
        await settled(broker)
        await until(lambda: list(serving(broker).versions) == versions, seconds=DEADLINE)
        assert ask(broker, minimum_accuracy=best.value)["accuracy"] == best.value


@SHARED
async def test_a_variant_that_takes_something_else_is_refused_and_the_others_go_on(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, linear: str
) -> None:
    broker, agent = shared_broker, shared_agent
    narrow = linear.replace("FEATURES = 6", "FEATURES = 5")
    first, second = wanted_run("one-1", linear, arguments=TRAIN), wanted_run("two-1", narrow, arguments=TRAIN)
    small, other = delivery_of("one-1", "small", version=1), delivery_of("two-1", "another", version=2)
    await broker.want(first, deliveries=[small])
    assert (await outcome(broker, small)).stage == DELIVERED
    await broker.want(first, second, deliveries=[small, other], endpoints=[LINE])
    status = await outcome(broker, other)
    assert status.stage == FAILED
    assert "it must take and give what variant 'small' does, but its inputs differ" in status.reason
    await settled(broker)
    assert ask(broker)["variant"] == "small"
    models = agent.state_dir / "agent" / "models"
    assert not (models / "_line.another").exists()
    listed = json.loads((models / "line" / "variants.json").read_text())["variants"]
    assert listed == [{"name": "small", "model": "_line.small"}]


@SHARED
async def test_a_variant_without_an_accuracy_is_refused(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, linear: str
) -> None:
    broker, agent = shared_broker, shared_agent
    run = wanted_run("scaled-1", linear, arguments=(*TRAIN, "--scale", "100"))
    wanted = delivery_of("scaled-1", "small", version=1)
    wanted.endpoint = "scaled"
    await broker.want(run, deliveries=[wanted])
    status = await outcome(broker, wanted)
    assert status.stage == FAILED
    assert "which is no accuracy" in status.reason
    assert not list((agent.state_dir / "agent" / "models").glob("_scaled.*/**/model.onnx"))
