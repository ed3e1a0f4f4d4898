"""Two ranks in a real container: they train, deliver, outlive their agent, and end together."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.agent_process import agent_process
from testing.docker import DockerEngine
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_delivery, wanted_run
from testing.trainer_service import SCRIPTS
from testing.until import until
from tiercel.v1 import nodes_pb2

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image


async def test_two_ranks_in_a_container(broker: ScriptedBroker, engine: DockerEngine, tmp_path: Path) -> None:
    endless = ("--epochs", "5000", "--step-sleep-seconds", "0.02")
    run = wanted_run(
        "ranks-1", (SCRIPTS / "ranks.py").read_text(), runtime="docker", cpu_cores=2.0, arguments=endless, target=0.7
    )
    run.spec.metric, run.spec.ranks = "accuracy", 2
    delivery = wanted_delivery("ranks-1", target=0.7)
    delivery.metric = "accuracy"
    flags = ["--docker-host", engine.host, "--docker-image", engine.image]
    with agent_process(tmp_path / "state", broker.address, *flags, runtimes="docker") as agent:
        await broker.want(run, deliveries=[delivery])
        await until(lambda: broker.heard.outcome(delivery.delivery_id), seconds=DEADLINE)
        outcome = broker.heard.outcome(delivery.delivery_id)
        assert outcome is not None
        assert outcome.stage == nodes_pb2.DELIVERY_STAGE_DELIVERED, broker.heard.output("ranks-1")

        await agent.kill()
        agent.start()
        seen = len(broker.heard.progress("ranks-1"))
        await until(lambda: len(broker.heard.progress("ranks-1")) > seen + 5, seconds=DEADLINE)

        run.stop = True
        await broker.want(run)
        await until(lambda: broker.heard.exit("ranks-1"), seconds=DEADLINE)
        status = broker.heard.exit("ranks-1")
    assert status is not None
    assert status.exit_code == 0, status.log_tail
    said = broker.heard.output("ranks-1").decode()
    for number in range(2):
        assert f"rank {number} of 2 is process" in said
        assert f"rank {number} leaves, stopping: True" in said
