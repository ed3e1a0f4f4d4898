"""A run that goes on on another node, as its agents see it: real agents and training, a broker that does as told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testing import onnx_models
from testing.agent_life import exit_of
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import ScriptedBroker, wanted_delivery, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

# An epoch takes some 40 ms and is checkpointed; the target is out of reach.
SLOW = ("--epochs", "1000", "--step-sleep-seconds", "0.01", "--metric", "score")

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent, and their runs have names of their own."""


def trains(run_id: str, script: str, **changes: bool | str) -> nodes_pb2.WantedRun:
    """A run of ``linear.py`` to want, in one state or another."""
    run = wanted_run(run_id, script, arguments=SLOW, target=2.0)
    run.MergeFrom(nodes_pb2.WantedRun(**changes))  # type: ignore[arg-type]
    return run


async def train_a_while(broker: ScriptedBroker, run: nodes_pb2.WantedRun) -> None:
    await broker.want(run)
    await until(lambda: len(broker.heard.progress(run.run_id)) >= 3, seconds=60.0)


async def test_a_checkpoint_travels_and_another_agent_goes_on_from_it(
    agent: AgentProcess, broker: ScriptedBroker, linear: str, tmp_path: Path
) -> None:
    await train_a_while(broker, trains("a-1", linear))
    await broker.want(trains("a-1", linear, stop=True, carry=True))
    status = await exit_of(broker, "a-1")
    assert (status.carried, status.carry_error, status.lost) == (True, "", False)
    assert status.reason == "its job goes on as another run"
    header, *content = broker.checkpoints["a-1"]
    assert header.header.node_id == "testing"
    data, begin = b"".join(message.data for message in content), 0
    for file in header.header.files:
        assert hashlib.sha256(data[begin : begin + file.size_bytes]).hexdigest() == file.sha256
        begin += file.size_bytes
    assert begin == len(data)
    assert "latest.pt" in {file.name for file in header.header.files}
    epochs = max(progress.epoch for progress in broker.heard.progress("a-1"))
    await agent.kill()  # two at a time would both do what is wanted, and hear what the other one is told
    with agent_process(tmp_path / "other", broker.address):
        await broker.want(trains("a-2", linear, carried_run_id="a-1"))
        await until(lambda: broker.heard.progress("a-2"), seconds=60.0)
        first = broker.heard.progress("a-2")[0]
        # What it prints and what it reports come by ways of their own.
        await until(lambda: b"going on after epoch" in broker.heard.output("a-2"), seconds=60.0)
    assert (first.sequence, first.epoch >= epochs) == (1, True)
    assert not list((tmp_path / "state" / "agent" / "carried").iterdir())


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_checkpoint_that_is_refused_is_told_with_the_exit(shared_broker: ScriptedBroker, linear: str) -> None:
    broker = shared_broker
    broker.refuses_checkpoints = True
    await train_a_while(broker, trains("refused-1", linear))
    await broker.want(trains("refused-1", linear, stop=True, carry=True))
    status = await exit_of(broker, "refused-1")
    broker.refuses_checkpoints = False
    assert (status.carried, status.carry_error) == (False, "the broker refuses: no checkpoint is wanted")
    # It is here still: the next run goes on from it.
    await broker.want(trains("refused-2", linear))
    await until(lambda: broker.heard.progress("refused-2"), seconds=60.0)
    assert b"going on after epoch" in broker.heard.output("refused-2")


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_run_whose_checkpoint_cannot_be_had_is_lost_through_no_fault_of_its_job(
    shared_broker: ScriptedBroker, linear: str
) -> None:
    broker = shared_broker
    await broker.want(trains("lost-2", linear, carried_run_id="lost-1"))
    status = await exit_of(broker, "lost-2")
    assert (status.lost, status.HasField("exit_code")) == (True, False)
    assert status.reason == "the broker refuses: there is no such checkpoint"


async def test_an_agent_that_is_killed_before_the_checkpoint_arrived_sends_it_when_it_is_back(
    broker: ScriptedBroker, linear: str, agent: AgentProcess, tmp_path: Path
) -> None:
    broker.holds_checkpoints = True
    await train_a_while(broker, trains("a-1", linear))
    await broker.want(trains("a-1", linear, stop=True, carry=True))
    await until(lambda: broker.held_checkpoints, seconds=60.0)
    assert broker.heard.exit("a-1") is None
    await agent.kill()
    broker.holds_checkpoints = False
    with agent_process(tmp_path / "state", broker.address):
        status = await exit_of(broker, "a-1")
    assert (status.carried, status.carry_error, status.lost) == (True, "", False)
    assert "a-1" in broker.checkpoints


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_model_that_was_asked_for_when_the_run_had_to_leave_is_had_from_its_successor(
    shared_broker: ScriptedBroker, raw_trainer: str
) -> None:
    broker = shared_broker
    wanted = wanted_delivery("leaves-1")
    run = wanted_run("leaves-1", raw_trainer, arguments=("silent",))
    await broker.want(run, deliveries=[wanted])
    await until(lambda: b"export" in broker.heard.output("leaves-1"), seconds=60.0)
    run.stop = run.carry = True
    await broker.want(run, deliveries=[wanted])
    status = await exit_of(broker, "leaves-1")
    assert (status.carried, status.carry_error) == (False, "it has saved no checkpoint")
    delivers = ("delivers", onnx_models.plus(1.0).hex())
    await broker.want(wanted_run("leaves-2", raw_trainer, arguments=delivers), deliveries=[wanted])
    await until(lambda: broker.heard.outcome("leaves-tier-1"), seconds=60.0)
    outcome = broker.heard.outcome("leaves-tier-1")
    assert outcome is not None
    assert outcome.stage == nodes_pb2.DELIVERY_STAGE_DELIVERED, outcome.reason


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_run_begins_with_the_weights_of_another_job_and_nothing_else_of_it(
    shared_broker: ScriptedBroker, linear: str
) -> None:
    broker = shared_broker
    await train_a_while(broker, trains("a-1", linear))
    await broker.want(trains("a-1", linear, stop=True))
    await exit_of(broker, "a-1")
    await train_a_while(broker, trains("b-1", linear, job_id="b", warm_start_job_id="a"))
    assert b"starting with the weights of job a" in broker.heard.output("b-1")
    assert [(each.sequence, each.epoch) for each in broker.heard.progress("b-1")[:2]] == [(1, 1), (2, 2)]
    # Its own checkpoint counts from now on.
    await broker.want(trains("b-1", linear, job_id="b", stop=True))
    await exit_of(broker, "b-1")
    await broker.want(trains("b-2", linear, job_id="b", warm_start_job_id="a"))
    await until(lambda: broker.heard.progress("b-2"), seconds=60.0)
    assert b"going on after epoch" in broker.heard.output("b-2")


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_job_without_a_checkpoint_is_nothing_to_begin_with(shared_broker: ScriptedBroker, linear: str) -> None:
    broker = shared_broker
    await broker.want(trains("d-1", linear, job_id="d", warm_start_job_id="gone"))
    status = await exit_of(broker, "d-1")
    assert (status.lost, status.HasField("exit_code")) == (False, False)
    assert status.reason.startswith("warm_start: the checkpoint of job gone cannot be had on this node:")
    assert status.reason.endswith("Submit the job without warm_start, or with that of another job.")
    await broker.want(trains("c-1", linear, job_id="c", warm_start_job_id="../../etc"))
    assert "is not a plain file name" in (await exit_of(broker, "c-1")).reason
