"""From the wish for a model to a version that answers, with the real inference server."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testing import onnx_models
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_delivery, wanted_run
from testing.until import until
from tiercel.serving.loading import suspects
from tiercel.v1 import nodes_pb2

TRAIN = ("--metric", "score", "--epochs", "100000", "--step-sleep-seconds", "0.01")
# Begins sooner than a script that loads PyTorch, where it does not matter how a model was made.
DELIVERS = ("delivers", onnx_models.plus(1.0).hex())
SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent, and have endpoints of their own."""
DELIVERED, FAILED = nodes_pb2.DELIVERY_STAGE_DELIVERED, nodes_pb2.DELIVERY_STAGE_FAILED


async def outcome(broker: ScriptedBroker, delivery_id: str) -> nodes_pb2.DeliveryStatus:
    """What became of a delivery, once it is known."""
    await until(lambda: broker.heard.outcome(delivery_id), seconds=DEADLINE)
    status = broker.heard.outcome(delivery_id)
    assert status is not None
    return status


def serving(broker: ScriptedBroker) -> nodes_pb2.ServingStatus:
    """What the agent says of the inference server."""
    return broker.heard.serving() or nodes_pb2.ServingStatus()


def served(broker: ScriptedBroker) -> list[nodes_pb2.ServedVersion]:
    """What answers."""
    return list(serving(broker).versions)


def wanted_model(version: int, *kept: int) -> nodes_pb2.WantedModel:
    """This version shall answer, and these stay."""
    return nodes_pb2.WantedModel(endpoint="line", version=version, kept_versions=kept)


def was_told_twice(broker: ScriptedBroker, status: nodes_pb2.DeliveryStatus) -> bool:
    """Whether the broker heard of a delivery's end again."""
    return broker.heard.deliveries(status.delivery_id).count(status) == 2


def metadata(broker: ScriptedBroker, endpoint: str = "line") -> dict[str, Any]:
    """What the inference server says of the endpoint."""
    serving = broker.heard.serving()
    assert serving is not None
    with urllib.request.urlopen(f"http://{serving.http}/v2/models/{endpoint}", timeout=10) as answer:
        content: dict[str, Any] = json.load(answer)
        return content


async def test_a_model_is_delivered_once(broker: ScriptedBroker, tmp_path: Path, linear: str) -> None:
    run, first = wanted_run("job-1", linear, arguments=TRAIN), wanted_delivery("job-1")
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(run)
        await until(lambda: any(p.metrics["score"] >= 0.5 for p in broker.heard.progress("job-1")), seconds=DEADLINE)
        await broker.want(run, deliveries=[first])
        status = await outcome(broker, "job-tier-1")
        assert status.stage == DELIVERED, status.reason
        assert status.value >= 0.5
        stages = [delivery.stage for delivery in broker.heard.deliveries("job-tier-1")]
        assert stages == [
            nodes_pb2.DELIVERY_STAGE_EXPORTING,
            nodes_pb2.DELIVERY_STAGE_LOADING,
            DELIVERED,
        ]
        assert status.HasField("delivered_at")
        model = agent.state_dir / "agent" / "models" / "line" / "1" / "model.onnx"
        assert hashlib.sha256(model.read_bytes()).hexdigest() == status.sha256
        assert metadata(broker)["versions"] == ["1"]
        served = nodes_pb2.ServedVersion(endpoint="line", version=1)
        await until(lambda: served in (broker.heard.serving() or nodes_pb2.ServingStatus()).versions)
        assert not list((agent.state_dir / "agent" / "jobs" / "job" / "exports").iterdir())
        # Wanted again, after a crash too, it is only reported again.
        await agent.kill()
    before = model.stat().st_mtime_ns
    with agent_process(tmp_path / "state", broker.address) as agent:
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        assert list(broker.heard.hellos[1].deliveries) == [status]
        await until(lambda: len(broker.heard.deliveries("job-tier-1")) == 4, seconds=DEADLINE)
        assert broker.heard.deliveries("job-tier-1")[-1] == status
        assert model.stat().st_mtime_ns == before
        await broker.want()
        delivery_log = agent.state_dir / "agent" / "deliveries.json"
        await until(lambda: json.loads(delivery_log.read_text()) == {"deliveries": {}})


@SHARED
async def test_a_second_version_replaces_the_first(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, linear: str
) -> None:
    broker = shared_broker
    run = wanted_run("second-1", linear, arguments=TRAIN)
    second = wanted_delivery("second-1", 2, version=7)
    await broker.want(run, deliveries=[wanted_delivery("second-1")])  # before there is anything to hand over
    assert (await outcome(broker, "second-tier-1")).stage == DELIVERED
    await broker.want(run, deliveries=[wanted_delivery("second-1"), second])
    assert (await outcome(broker, "second-tier-2")).stage == DELIVERED
    assert metadata(broker)["versions"] == ["7"]


async def test_what_is_kept_answers_when_it_is_wanted_and_what_is_wanted_outlives_restarts(
    broker: ScriptedBroker, tmp_path: Path, linear: str
) -> None:
    run, first = wanted_run("job-1", linear, arguments=TRAIN), wanted_delivery("job-1")
    undecided = wanted_delivery("job-1", 2, version=2, verdict=nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(run, deliveries=[first])
        assert (await outcome(broker, "job-tier-1")).stage == DELIVERED
        await broker.want(run, deliveries=[first, undecided])
        loading = nodes_pb2.DELIVERY_STAGE_LOADING
        await until(lambda: any(d.stage == loading for d in broker.heard.deliveries("job-tier-2")), seconds=DEADLINE)
        said = broker.heard.deliveries("job-tier-2")[-1]
        assert (said.value >= 0.5, len(said.sha256)) == (True, 64)
        assert [(each.name, each.datatype, list(each.shape)) for each in said.signature.inputs] == [
            ("input", "FP32", [-1, 6])
        ]
        undecided.verdict = nodes_pb2.DELIVERY_VERDICT_HELD
        await broker.want(run, deliveries=[first, undecided])
        assert (await outcome(broker, "job-tier-2")).stage == DELIVERED
        assert metadata(broker)["versions"] == ["1"]
        await broker.want(models=[wanted_model(2, 1, 2)])  # promoted
        await until(lambda: metadata(broker)["versions"] == ["2"], seconds=DEADLINE)
        await broker.want(models=[wanted_model(1, 1, 2)])  # rolled back
        await until(lambda: metadata(broker)["versions"] == ["1"], seconds=DEADLINE)
        await agent.kill()
        os.kill(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"], 9)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        await broker.want()  # a broker that remembers nothing
        await until(lambda: nodes_pb2.ServedVersion(endpoint="line", version=1) in served(broker), seconds=DEADLINE)
        await broker.want(models=[wanted_model(7, 1, 2)])
        problem = nodes_pb2.ModelProblem(
            endpoint="line", reason="The files of version 7 are not on this node any more."
        )
        await until(lambda: list(serving(broker).problems) == [problem], seconds=DEADLINE)
        await broker.want(models=[wanted_model(0)])  # it has moved
        await until(lambda: not served(broker) and not serving(broker).problems, seconds=DEADLINE)
        await until(lambda: not (agent.state_dir / "agent" / "models" / "line").exists())


async def test_a_version_that_the_server_does_not_bring_back_is_told_with_the_reason(
    broker: ScriptedBroker, agent: AgentProcess, raw_trainer: str
) -> None:
    run, delivery = wanted_run("job-1", raw_trainer, arguments=DELIVERS), wanted_delivery("job-1")
    await broker.want(run, deliveries=[delivery])
    assert (await outcome(broker, "job-tier-1")).stage == DELIVERED
    models = agent.state_dir / "agent" / "models"
    (models / "line" / "1" / suspects.FILE).write_text('{"times": [], "held_back": true}')
    os.kill(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"], 9)
    await until(lambda: serving(broker).problems, seconds=DEADLINE)
    (problem,) = serving(broker).problems
    assert problem.endpoint == "line"
    assert problem.reason.startswith("Version 1 does not answer: held back: the server was killed more than once")
    await until(lambda: not served(broker), seconds=DEADLINE)


async def test_a_model_that_an_operator_has_put_there_is_not_taken_for_the_jobs(
    broker: ScriptedBroker, tmp_path: Path, raw_trainer: str
) -> None:
    onnx_models.put(tmp_path / "state" / "agent" / "models", "line", 1, onnx_models.plus(1.0))
    content = (tmp_path / "state" / "agent" / "models" / "line" / "1" / "model.onnx").read_bytes()
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(wanted_run("job-1", raw_trainer, arguments=DELIVERS), deliveries=[wanted_delivery("job-1")])
        status = await outcome(broker, "job-tier-1")
        assert status.stage == FAILED
        assert "has a model named 'line' that Tiercel has not put there; rename it" in status.reason
        file = agent.state_dir / "agent" / "models" / "line" / "1" / "model.onnx"
        assert file.read_bytes() == content
        await until(lambda: nodes_pb2.ServedVersion(endpoint="line", version=1) in served(broker), seconds=DEADLINE)


@SHARED
async def test_a_model_that_misses_its_target_once_exported_is_handed_over_after_a_better_report_or_fails(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, linear: str
) -> None:
    broker, agent = shared_broker, shared_agent
    never = wanted_run("never-1", linear, arguments=("--metric", "score", "--epochs", "20", "--falls-short", "99"))
    await broker.want(never, deliveries=[wanted_delivery("never-1", endpoint="never")])
    status = await outcome(broker, "never-tier-1")
    assert status.stage == FAILED
    assert "which misses the target 0.5" in status.reason
    assert not list((agent.state_dir / "agent" / "models" / "never").rglob("model.onnx"))
    run = wanted_run("late-1", linear, arguments=(*TRAIN, "--falls-short", "2"))
    await broker.want(run, deliveries=[wanted_delivery("late-1", endpoint="late")])
    status = await outcome(broker, "late-tier-1")
    assert status.stage == DELIVERED, status.reason
    assert status.value >= 0.5
    assert agent.log.read_text().count("delivery late-tier-1 waits for a better report: the exported model was") == 2
    assert metadata(broker, "late")["versions"] == ["1"]


async def test_a_lost_run_is_succeeded_by_one_that_hands_over_the_model(
    broker: ScriptedBroker, tmp_path: Path, raw_trainer: str
) -> None:
    wanted = wanted_delivery("job-1")
    with agent_process(tmp_path / "state", broker.address) as agent:
        run = wanted_run("job-1", raw_trainer, arguments=("silent",))
        await broker.want(run, deliveries=[wanted])
        await until(lambda: b"export" in broker.heard.output("job-1"), seconds=DEADLINE)
        await agent.kill()
    with agent_process(tmp_path / "state", broker.address):
        await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
        await broker.want(deliveries=[wanted])  # the broker lets go of the lost run before it starts the next
        await broker.want(wanted_run("job-2", raw_trainer, arguments=DELIVERS), deliveries=[wanted])
        status = await outcome(broker, "job-tier-1")
        assert status.stage == DELIVERED, status.reason


@SHARED
async def test_a_run_that_crashes_while_it_hands_over_is_succeeded_by_its_retry(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, raw_trainer: str
) -> None:
    """As when it takes too much memory to export."""
    broker = shared_broker
    wanted = wanted_delivery("crashes-1", endpoint="retried")
    await broker.want(wanted_run("crashes-1", raw_trainer, arguments=("crash",), retried=True), deliveries=[wanted])
    await until(lambda: broker.heard.exit("crashes-1"), seconds=DEADLINE)
    await broker.want(deliveries=[wanted])
    await broker.want(wanted_run("crashes-2", raw_trainer, arguments=DELIVERS), deliveries=[wanted])
    status = await outcome(broker, "crashes-tier-1")
    assert status.stage == DELIVERED, status.reason


OVER = "The run ended before it handed over the model."
NO_MODELS = {
    "garbage": "model",
    "link": "model.onnx cannot be opened as a regular file",
    "pipe": "model.onnx is not a regular file",
    "wrong-sum": "not the file whose checksum the script reported",
    "error": "there is no such model",
    "exit": OVER,
}
"""For each way to hand over none, what the agent says of it."""


@SHARED
async def test_what_is_not_a_model_is_refused(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, raw_trainer: str
) -> None:
    broker, agent = shared_broker, shared_agent
    over = wanted_run("over-1", "pass")
    await broker.want(over)
    await until(lambda: broker.heard.exit("over-1"), seconds=DEADLINE)
    runs = [over, *(wanted_run(f"{mode}-1", raw_trainer, arguments=(mode,)) for mode in NO_MODELS)]
    deliveries = [
        wanted_delivery(run.run_id, version=version, endpoint="refused") for version, run in enumerate(runs, 1)
    ]
    evil = wanted_delivery("evil-1", endpoint="../../evil")
    await broker.want(*runs, deliveries=[*deliveries, evil])
    assert (await outcome(broker, "over-tier-1")).reason == OVER
    assert "cannot be a folder" in (await outcome(broker, "evil-tier-1")).reason
    ends = {mode: await outcome(broker, f"{mode}-tier-1") for mode in NO_MODELS}
    for mode, status in ends.items():
        assert status.stage == FAILED
        assert NO_MODELS[mode] in status.reason, mode
    models = agent.state_dir / "agent" / "models" / "refused"
    assert not list(models.rglob("model.onnx"))
    await broker.want(*runs, deliveries=deliveries)
    for status in ends.values():
        await until(partial(was_told_twice, broker, status))


async def test_a_server_that_is_down_is_waited_for(
    broker: ScriptedBroker, agent: AgentProcess, raw_trainer: str
) -> None:
    run = wanted_run("job-1", raw_trainer, arguments=DELIVERS)
    await broker.want(run)
    await until(lambda: broker.heard.serving() and broker.heard.progress("job-1"), seconds=DEADLINE)
    os.kill(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"], 9)
    await broker.want(run, deliveries=[wanted_delivery("job-1")])
    status = await outcome(broker, "job-tier-1")
    assert status.stage == DELIVERED, status.reason


@SHARED
async def test_what_is_no_longer_wanted_is_given_up(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, raw_trainer: str
) -> None:
    broker = shared_broker
    run = wanted_run("given-1", raw_trainer, arguments=("silent",))
    await broker.want(run, deliveries=[wanted_delivery("given-1")])
    await until(lambda: b"export" in broker.heard.output("given-1"), seconds=DEADLINE)
    await broker.want(run, wanted_run("seen-1", "pass"))
    await until(lambda: broker.heard.exit("seen-1"), seconds=DEADLINE)
    await broker.want(run, deliveries=[wanted_delivery("given-1")])
    exporting = nodes_pb2.DeliveryStatus(delivery_id="given-tier-1", stage=nodes_pb2.DELIVERY_STAGE_EXPORTING)
    await until(lambda: broker.heard.deliveries("given-tier-1") == [exporting, exporting])
