"""Runs that hold accelerators, through an agent with real processes; the time of steps stands in for theirs."""

from __future__ import annotations

import pytest

from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

pytestmark = pytest.mark.timeout(600)

TRAIN = ("--metric", "score", "--epochs", "100000", "--steps", "100", "--step-sleep-seconds", "0.01")
ENVIRONMENT = """
import os
for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"):
    print(os.environ.get(name))
"""


def holding(
    run: nodes_pb2.WantedRun, *accelerators: str, fraction: float, memory_bytes: int = 0
) -> nodes_pb2.WantedRun:
    """The same run with accelerators."""
    del run.share.accelerators[:]
    for accelerator in accelerators:
        run.share.accelerators.add(id=accelerator, fraction=fraction, memory_bytes=memory_bytes)
    return run


def training(run_id: str, linear: str, fraction: float) -> nodes_pb2.WantedRun:
    arguments = (*TRAIN, "--checkpoint-seconds", "1000")
    return holding(wanted_run(run_id, linear, arguments=arguments, target=2.0), "GPU-a", fraction=fraction)


def usages(broker: ScriptedBroker, run_id: str) -> list[nodes_pb2.RunUsage]:
    """What heartbeats said of a run, oldest first."""
    beats = [message.heartbeat for message in broker.heard.messages if message.HasField("heartbeat")]
    return [usage for beat in beats for usage in beat.runs if usage.run_id == run_id]


async def used(broker: ScriptedBroker, run_id: str, seconds: float) -> None:
    """Wait until a run has used that much more."""
    await until(lambda: usages(broker, run_id), seconds=DEADLINE)
    before = usages(broker, run_id)[-1].accelerator_seconds
    await until(
        lambda: usages(broker, run_id)[-1].accelerator_seconds > before + seconds, seconds=DEADLINE + 20 * seconds
    )


async def test_a_run_sees_the_accelerators_of_its_share_and_one_without_sees_none(
    broker: ScriptedBroker, agent: AgentProcess
) -> None:
    await broker.want(
        holding(wanted_run("two-1", ENVIRONMENT), "GPU-b", "GPU-a", fraction=0.5),
        wanted_run("none-1", ENVIRONMENT),
    )
    for run_id, seen in (("two-1", "GPU-b,GPU-a"), ("none-1", "")):
        await until(lambda run_id=run_id: broker.heard.exit(run_id), seconds=DEADLINE)  # type: ignore[misc]
        assert broker.heard.output(run_id).decode().splitlines() == [seen, "None", "None"]


async def test_mps_is_used_where_the_operator_runs_it(
    broker: ScriptedBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with agent_process(tmp_path_factory.mktemp("state"), broker.address, "--mps", "yes"):
        await broker.want(
            holding(wanted_run("half-1", ENVIRONMENT), "GPU-a", fraction=0.5, memory_bytes=1 << 30),
            wanted_run("none-1", ENVIRONMENT),
        )
        for run_id, seen in (("half-1", ["GPU-a", "50", "0=1024M"]), ("none-1", ["", "None", "None"])):
            await until(lambda run_id=run_id: broker.heard.exit(run_id), seconds=DEADLINE)  # type: ignore[misc]
            assert broker.heard.output(run_id).decode().splitlines() == seen


async def test_two_runs_on_an_accelerator_are_paced_by_their_fractions_and_what_they_used_is_said_to_the_end(
    broker: ScriptedBroker, agent: AgentProcess, linear: str
) -> None:
    small, large = training("small-1", linear, 0.2), training("large-1", linear, 0.8)
    await broker.want(small, large)
    await used(broker, "large-1", 3.0)
    await used(broker, "small-1", 1.0)
    began = [usages(broker, run_id)[-1].accelerator_seconds for run_id in ("small-1", "large-1")]
    await used(broker, "large-1", 6.0)
    ended = [usages(broker, run_id)[-1].accelerator_seconds for run_id in ("small-1", "large-1")]
    few, many = (after - before for before, after in zip(began, ended, strict=True))
    # 0.2 of an accelerator that is shared with one who always has work there takes 0.4 of the time.
    assert 0.25 < few / many < 0.6
    assert few > 0
    large.stop = True
    await broker.want(small, large)
    await until(lambda: broker.heard.exit("large-1"), seconds=DEADLINE)
    status = broker.heard.exit("large-1")
    assert status is not None
    assert status.accelerator_seconds > many
    assert broker.heard.progress("large-1")[-1].accelerator_seconds > many
