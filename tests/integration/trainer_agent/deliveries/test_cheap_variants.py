"""A job whose versions have cheap variants, through an agent that is killed, with the real inference server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from testing.agent_process import agent_process
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_delivery, wanted_run
from testing.product_use import SCRIPTS
from testing.until import until
from tiercel.core.heard_variants import heard_variants
from tiercel.v1 import nodes_pb2

TRAIN = ("--metric", "score", "--epochs", "100000", "--step-sleep-seconds", "0.01")
DELIVERED, LOADING = nodes_pb2.DELIVERY_STAGE_DELIVERED, nodes_pb2.DELIVERY_STAGE_LOADING
# One that int8 makes much faster, and that need not have learned much.
LAYERS = "nn.Linear(6, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2)"


def wanted(script: str, run_id: str, *variants: str) -> nodes_pb2.WantedRun:
    run = wanted_run(run_id, script, arguments=TRAIN)
    run.spec.variants.extend(["fp32", *variants])
    run.spec.variants_max_loss = 0.9
    return run


def heard(broker: ScriptedBroker, delivery_id: str, stage: int) -> nodes_pb2.DeliveryStatus | None:
    return next((each for each in broker.heard.deliveries(delivery_id) if each.stage == stage), None)


def ask(broker: ScriptedBroker) -> dict[str, Any]:
    """Who answers; empty while nobody does."""
    serving = broker.heard.serving() or nodes_pb2.ServingStatus()
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}
    body = json.dumps({"inputs": [tensor], "parameters": {"timeout": 30_000_000}}).encode()
    request = urllib.request.Request(f"http://{serving.http}/v2/models/line/infer", body)
    with urllib.request.urlopen(request, timeout=90) as answer:
        said: dict[str, Any] = json.load(answer)["parameters"]
        return said


async def test_a_cheap_variant_is_shipped_with_its_version_whatever_dies_in_between(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    linear = (SCRIPTS / "linear.py").read_text()
    start, end = linear.index("model = nn.Sequential("), linear.index("\noptimizer")
    wide = f"{linear[:start]}model = nn.Sequential({LAYERS}){linear[end:]}"
    run = wanted(wide, "job-1", "int8", "fp16")
    delivery = wanted_delivery("job-1", verdict=nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(run, deliveries=[delivery])
        await until(lambda: heard(broker, "job-tier-1", LOADING), seconds=DEADLINE)
        status = heard(broker, "job-tier-1", LOADING)
        assert status is not None
        int8, fp16 = status.cheap_variants
        assert int8.shipped, int8.reason
        assert (int8.made, fp16.made) == ("static, calibrated on 100 rows", "weights in float16")
        assert 0 < int8.seconds < int8.fp32_seconds
        assert 0 < int8.size_bytes < fp16.size_bytes < status.size_bytes
        assert fp16.shipped or "it is not faster where it was made" in fp16.reason
        await agent.kill()
    delivery.verdict = nodes_pb2.DELIVERY_VERDICT_LIVE
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(run, deliveries=[delivery])
        await until(lambda: heard(broker, "job-tier-1", DELIVERED), seconds=DEADLINE)
        delivered = heard(broker, "job-tier-1", DELIVERED)
        assert delivered is not None
        assert delivered.cheap_variants == status.cheap_variants
        models = agent.state_dir / "agent" / "models" / "line"
        shipped = {each.kind.value: each.value for each in heard_variants(status.cheap_variants) if each.shipped}
        files = sorted(["accuracy.json", "model.onnx", "reference.npz", *(f"model.{kind}.onnx" for kind in shipped)])
        assert sorted(each.name for each in (models / "1").iterdir()) == files
        told = json.loads((models / "1" / "accuracy.json").read_text())
        assert told == {"accuracy": status.value} | shipped
        said = ask(broker)
        assert said["accuracy"] == told.get(said["variant"], told["accuracy"])
        # With other limits nothing is shipped, and the delivery says why.
        run = wanted(linear, "small-1", "int8")
        await broker.want(run, deliveries=[delivery, wanted_delivery("small-1", version=2)])
        await until(lambda: heard(broker, "small-tier-1", DELIVERED), seconds=DEADLINE)
        small = heard(broker, "small-tier-1", DELIVERED)
        assert small is not None
        assert [each.shipped for each in small.cheap_variants] == [False]
        assert all(each.reason for each in small.cheap_variants)
        assert not list((models / "2").glob("model.*.onnx"))
        assert ask(broker) == {"accuracy": small.value}
