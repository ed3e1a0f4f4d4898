"""An agent whose containers have packages, from what its broker wants to what its runs say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testing.agent_process import agent_process
from testing.docker import DockerEngine
from testing.node_environments import NodeEnvironments
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.run_handles import finish
from testing.until import until
from testing.warm_node import container_node
from testing.wheels import write_wheel
from tiercel.trainer_agent.environments import building, folders
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.runtimes.contract import CONTAINER_ENVIRONMENT
from tiercel.v1 import nodes_pb2

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

SCRIPT = """
import os, time
import alpha
print("has", alpha.VERSION, flush=True)
while not os.path.exists("go"): time.sleep(0.05)
import later
print("still has", later.VERSION, flush=True)
"""
WARM = "import sys; print('alpha' in sys.modules); import alpha; print(alpha.VERSION, sys.prefix)"
FIND = ("ps", "--all", "--quiet", "--filter", "label=tiercel.node=packages")


async def test_a_container_keeps_its_packages_over_a_restart_and_past_the_bound(
    broker: ScriptedBroker, engine: DockerEngine, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    for name in ("alpha", "beta"):
        write_wheel(wheels, name, files={f"{name}.py": "VERSION = '1.0'\n", "later.py": "VERSION = '1.0'\n"})
    flags = ["--docker-host", engine.host, "--docker-image", engine.image, "--package-folder", str(wheels)]
    # A bound that one environment has less than, and two have more.
    flags += ["--package-offline", "1", "--environments-bytes", "100000"]
    first = wanted_run("first-1", SCRIPT, runtime="docker")
    first.spec.requirements.append("alpha")
    second = wanted_run("second-1", "import beta; print('has', beta.VERSION)", runtime="docker")
    second.spec.requirements.append("beta")
    third = wanted_run("third-1", "", runtime="docker")
    third.spec.requirements.append("nowhere")
    third.spec.module = "nowhere"
    kept = tmp_path / "state" / "agent" / "environments"
    with agent_process(
        tmp_path / "state", broker.address, *flags, runtimes="docker,process", node_id="packages"
    ) as agent:
        await broker.want(first)
        await until(lambda: b"has 1.0" in broker.heard.output("first-1"), seconds=DEADLINE)
        said = broker.heard.output("first-1").decode()
        assert said.startswith("[tiercel: environment: its image is asked what it has]\n[tiercel: environment: uv")
        assert "+ alpha==1.0" in said
        running = broker.heard.runs("first-1")[-1]
        assert running.image_id.startswith("sha256:")
        assert (kept / running.environment / "complete.json").exists()
        await agent.kill()
        agent.start()
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        (status,) = broker.heard.hellos[1].runs
        assert status.state == nodes_pb2.RUN_STATE_RUNNING
        await broker.want(first, second, third)
        await until(lambda: broker.heard.exit("second-1") and broker.heard.exit("third-1"), seconds=DEADLINE)
        ended = {run: broker.heard.exit(run) for run in ("second-1", "third-1")}
        assert ended["second-1"] is not None and ended["second-1"].exit_code == 0, ended  # noqa: PT018
        assert "Its environment cannot be built: " in ended["third-1"].reason  # type: ignore[union-attr]
        assert "nowhere" in ended["third-1"].reason  # type: ignore[union-attr]
        assert (kept / running.environment / "complete.json").exists()
        (tmp_path / "state" / "agent" / "jobs" / "first" / "work" / "go").touch()
        await until(lambda: broker.heard.exit("first-1"), seconds=DEADLINE)
        assert b"still has 1.0" in broker.heard.output("first-1")
        assert {path.name for path in (kept / "failed").iterdir()} != set()
        sizes = [json.loads(path.read_text())["size_bytes"] for path in kept.glob("*/complete.json")]
        assert sum(sizes) > 100_000 > max(sizes)
    assert not engine.command(*FIND).strip()


async def test_a_container_that_waits_has_its_runs_packages_and_not_those_that_were_removed(
    node: NodeEnvironments, engine: DockerEngine, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts containers warm")
    write_wheel(node.wheels, "alpha")
    async with container_node(tmp_path, engine, name="packages") as containers:
        ask = containers.runtime.image_python
        image_id = await ask.identify("")
        layer = await ImageLayers(CONTAINER_ENVIRONMENT).of(image_id, ask.ask, node.said.append)

        async def with_packages() -> dict[str, Any]:
            python = await node.ready("alpha", image=layer)
            key, made = building.key_of(python), building.made_of(python)
            return {"image": image_id, "python": python, "environment_key": key, "environment_made": made}

        first = await with_packages()
        await containers.warm_up(["alpha"], **first)
        assert await containers.finish_warm(WARM, **first) == (0, f"True\n1.0 {CONTAINER_ENVIRONMENT}\n")
        await until(containers.template, seconds=60)
        folders.remove(node.built()[0])
        again = await with_packages()
        assert {**again, "environment_made": ""} == {**first, "environment_made": ""}
        run = await containers.start(WARM, **again)
        assert not run.is_warm  # what waits has a folder that is gone
        assert await finish(run) == (0, f"False\n1.0 {CONTAINER_ENVIRONMENT}\n")
