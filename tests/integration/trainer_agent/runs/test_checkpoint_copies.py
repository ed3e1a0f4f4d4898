"""Copies of checkpoints of runs that train: real agents and training, a broker that takes them in or does not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

# An epoch takes some 40 ms and is checkpointed; the target is out of reach.
SLOW = ("--epochs", "1000", "--step-sleep-seconds", "0.01", "--metric", "score")

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent, and their runs have names of their own."""


def trains(run_id: str, script: str) -> nodes_pb2.WantedRun:
    """A run whose job asks for copies, more often than a broker would allow."""
    run = wanted_run(run_id, script, arguments=SLOW, target=2.0)
    run.spec.copy_checkpoint_seconds = 0.1
    return run


async def test_a_run_that_trains_has_its_newest_checkpoint_copied_again_and_again(
    agent: AgentProcess, broker: ScriptedBroker, linear: str, tmp_path: Path
) -> None:
    await broker.want(trains("a-1", linear))
    seen = set[str]()
    for _ in range(2):
        await until(lambda: "a-1" in broker.checkpoints, seconds=60.0)
        header, *content = broker.checkpoints.pop("a-1")
        data, begin = b"".join(message.data for message in content), 0
        for file in header.header.files:
            assert hashlib.sha256(data[begin : begin + file.size_bytes]).hexdigest() == file.sha256
            begin += file.size_bytes
        assert begin == len(data) > 0
        seen |= {file.sha256 for file in header.header.files if file.name == "latest.pt"}
    assert len(seen) == 2
    await until(lambda: "a-1" in broker.checkpoints, seconds=60.0)
    await agent.kill()  # two at a time would both do what is wanted, and hear what the other one is told
    with agent_process(tmp_path / "other", broker.address):
        run = wanted_run("a-2", linear, arguments=SLOW, target=2.0)
        run.carried_run_id = "a-1"
        await broker.want(run)
        # What it prints and what it reports come by ways of their own.
        await until(lambda: b"going on after epoch" in broker.heard.output("a-2"), seconds=60.0)


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_what_the_broker_refuses_is_said_once_and_the_run_trains_on(
    shared_broker: ScriptedBroker, linear: str
) -> None:
    broker = shared_broker
    broker.refuses_checkpoints = True
    words = b"the broker has no copy of the newest checkpoint: the broker refuses: no checkpoint is wanted"
    await broker.want(trains("refused-1", linear))
    await until(lambda: words in broker.heard.output("refused-1"), seconds=60.0)
    epoch = broker.heard.progress("refused-1")[-1].epoch
    await until(lambda: broker.heard.progress("refused-1")[-1].epoch > epoch + 20, seconds=60.0)
    assert broker.heard.output("refused-1").count(words) == 1
    broker.refuses_checkpoints = False
    await until(lambda: "refused-1" in broker.checkpoints, seconds=60.0)
    await broker.want()  # nor has another test to do with its copies
    await until(lambda: broker.heard.exit("refused-1"), seconds=60.0)


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_move_does_not_wait_for_a_copy_that_is_under_way(shared_broker: ScriptedBroker, linear: str) -> None:
    broker = shared_broker
    broker.holds_checkpoints = True
    run = trains("moves-1", linear)
    await broker.want(run)
    await until(lambda: broker.held_checkpoints, seconds=60.0)
    broker.holds_checkpoints = False
    run.stop = run.carry = True
    await broker.want(run)
    await until(lambda: broker.heard.exit("moves-1"), seconds=60.0)
    status = broker.heard.exit("moves-1")
    assert status is not None
    assert (status.carried, status.carry_error) == (True, "")
