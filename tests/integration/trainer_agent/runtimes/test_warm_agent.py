"""An agent finds out by itself what a tenant's runs import, and starts the next ones warm."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from testing.agent_process import agent_process
from testing.docker import DockerEngine
from testing.nodes_broker import ScriptedBroker, wanted_run
from testing.trainer_service import SCRIPTS
from testing.until import until
from tiercel.v1 import nodes_pb2

WARM = ("--warm-templates", "2")
SHORT = ("--metric", "score", "--steps", "2", "--epochs", "3")


async def test_the_runs_of_a_tenant_become_warm_and_learn_the_same(
    broker: ScriptedBroker, linear: str, tmp_path: Path
) -> None:
    with agent_process(tmp_path / "state", broker.address, *WARM):
        cold_seconds, cold_output = await _run(broker, "first-1", linear)
        async with asyncio.timeout(90):
            for number in itertools.count():
                _, warm_output = await _run(broker, f"next{number}-1", linear)
                assert warm_output == cold_output
                if (warm := _begun(broker, f"next{number}-1")).warm:
                    break
                await asyncio.sleep(2.0)
    cold = _begun(broker, "first-1")
    assert not cold.warm
    assert 0 <= warm.begun_cpu_seconds < cold.begun_cpu_seconds < cold_seconds


@pytest.mark.docker
@pytest.mark.timeout(600)  # the first session makes the image
async def test_so_do_runs_in_containers_and_none_is_left_when_the_agent_ends(
    broker: ScriptedBroker, engine: DockerEngine, tmp_path: Path
) -> None:
    linear = (SCRIPTS / "linear.py").read_text()  # with PyTorch, whose import is worth a container that waits
    if os.geteuid() != 0:
        pytest.skip("only root starts containers warm")
    waiting = (
        "ps",
        "--all",
        "--quiet",
        "--filter",
        "label=tiercel.waiting",
        "--filter",
        "label=tiercel.node=warm-agent",
    )
    flags = ("--docker-host", engine.host, "--docker-image", engine.image, "--node-id", "warm-agent", *WARM)
    with agent_process(tmp_path / "state", broker.address, *flags, runtimes="docker") as agent:
        outputs = {(await _run(broker, f"cold{number}-1", linear, "docker"))[1] for number in range(2)}
        await until(lambda: "waits for a run of tests" in agent.log.read_text(), seconds=60.0)
        outputs.add((await _run(broker, "warm-1", linear, "docker"))[1])
        assert "started warm" in agent.log.read_text()
        assert len(outputs) == 1
        await until(lambda: engine.command(*waiting).strip())  # the next one
    assert not engine.command(*waiting).strip()


def _begun(broker: ScriptedBroker, run_id: str) -> nodes_pb2.RunStatus:
    """What was said of a run once it trained; it is said once."""
    (said,) = [status for status in broker.heard.runs(run_id) if status.HasField("begun_cpu_seconds")][:1]
    return said


async def _run(broker: ScriptedBroker, run_id: str, script: str, runtime: str = "process") -> tuple[float, bytes]:
    """The CPU seconds of a run, and its output."""
    await broker.want(wanted_run(run_id, script, arguments=SHORT, target=2.0, runtime=runtime))
    await until(lambda: broker.heard.exit(run_id), seconds=60.0)
    status = broker.heard.exit(run_id)
    assert status is not None
    assert status.exit_code == 0, status.log_tail
    return status.cpu_seconds, broker.heard.output(run_id)
