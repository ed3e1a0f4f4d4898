"""What CPU training really gets, measured, while its share changes in mid-run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiodocker import Docker

from testing.agent_process import agent_process
from testing.cpu import assert_cores, assert_ratio, cores_used
from testing.docker import DockerEngine, docker_runtime
from testing.needs import need
from testing.nodes_broker import DEADLINE, NODE_TOKEN, ScriptedBroker, wanted_delivery, wanted_run
from testing.trainer_service import SCRIPTS
from testing.until import until
from tiercel.trainer_agent.agent import Agent
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.limits.contract import CpuShare, Limits
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.limits.cpu import Capacity
from tiercel.trainer_agent.limits.detect import detect
from tiercel.trainer_agent.parts import AgentParts
from tiercel.trainer_agent.runtimes.contract import Launch, Program, RunHandle, Runtime
from tiercel.trainer_agent.runtimes.processes.runtime import ProcessRuntime
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import nodes_pb2

pytestmark = pytest.mark.timeout(600)  # the first session makes the image

GIBIBYTE = 1024**3
# All runs together weigh one process for each core of the node: with so many, other work on the machine does not
# disturb what is measured.
ALL_OF_THE_MACHINE = 2000.0
BUSY = (
    "import os\nos.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\nprint('ready', flush=True)\nwhile True: pass"
)
_numbers = itertools.count(1)

RUNTIMES = ["process", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture
def limits() -> Iterator[Limits]:
    limits = detect(f"shares-{os.getpid()}", ALL_OF_THE_MACHINE)
    need(limits.name != "cooperative", "control groups that may be written, for the kernel to enforce shares")
    yield limits
    limits.close()


@pytest.fixture(params=RUNTIMES)
async def runtime(request: pytest.FixtureRequest, limits: Limits, tmp_path: Path) -> AsyncIterator[Runtime]:
    if request.param == "process":
        yield ProcessRuntime(tmp_path / "minders", limits)
        return
    engine: DockerEngine = request.getfixturevalue("engine")
    async with docker_runtime(engine, "shares", cgroup_parent=limits.container_parent) as docker:
        yield docker


@contextlib.asynccontextmanager
async def busy_run(runtime: Runtime, folder: Path, share: CpuShare) -> AsyncIterator[RunHandle]:
    """A run that keeps one core busy, the same one for all."""
    run_id = f"busy-{next(_numbers)}"
    job = JobFolder(folder / run_id)
    job.prepare(token="t", script=ScriptFile("train.py", BUSY.encode()), owner=runtime.owner)
    launch = Launch(run_id, job.path, Program(script="train.py"), memory_bytes=GIBIBYTE, share=share)
    run = await runtime.start(launch)
    output: list[bytes] = []

    async def read() -> None:
        async for chunk in run.output():
            output.append(chunk.data)  # noqa: PERF401 - a comprehension would show nothing before the end

    async with Supervisor() as tasks:
        tasks.start("output", read())
        try:
            await until(lambda: b"ready" in b"".join(output), seconds=DEADLINE)
            yield run
        finally:
            await run.close()
            tasks.cancel_all()


def cpu_seconds(run: RunHandle) -> Callable[[], Awaitable[float]]:
    """Tells what a run has used."""

    async def tell() -> float:
        return (await run.usage()).cpu_seconds

    return tell


@pytest.mark.alone
async def test_weights_divide_a_contended_core(runtime: Runtime, tmp_path: Path) -> None:
    async with (
        busy_run(runtime, tmp_path, CpuShare(0.75)) as first,
        busy_run(runtime, tmp_path, CpuShare(0.25)) as second,
    ):
        runs = {"first": cpu_seconds(first), "second": cpu_seconds(second)}
        await assert_ratio(runs, 3.0)
        await first.apply_share(CpuShare(0.5))
        await second.apply_share(CpuShare(0.5))
        await assert_ratio(runs, 1.0)


@pytest.mark.alone
async def test_caps_hold_a_run_back_until_they_are_lifted(runtime: Runtime, tmp_path: Path) -> None:
    async with busy_run(runtime, tmp_path, CpuShare(1.0, cap_cores=0.3)) as run:
        await assert_cores(cpu_seconds(run), 0.3)
        await run.apply_share(CpuShare(1.0, cap_cores=0.8))
        await assert_cores(cpu_seconds(run), 0.8)
        await run.apply_share(CpuShare(1.0))
        await assert_cores(cpu_seconds(run), 1.0)


@pytest.mark.alone
async def test_training_weighs_like_anybody_and_gives_way_to_what_answers(tmp_path: Path) -> None:
    limits = detect(f"weights-{os.getpid()}", 1.0)
    need(limits.name != "cooperative", "control groups that may be written, for the kernel to enforce shares")
    try:
        async with busy_run(ProcessRuntime(tmp_path / "minders", limits), tmp_path, CpuShare(1.0)) as run:
            with _busy_process() as ordinary:
                await assert_ratio({"ordinary": ordinary.cpu_seconds, "training": cpu_seconds(run)}, 1.0)
                limits.protect(ordinary.pid)
                answering, training = await asyncio.gather(
                    cores_used(ordinary.cpu_seconds, 3.0), cores_used(cpu_seconds(run), 3.0)
                )
    finally:
        limits.close()
    assert answering > 10 * training


async def test_the_inference_server_has_a_memory_group_of_its_own(
    broker: ScriptedBroker, limits: Limits, tmp_path: Path
) -> None:
    need(limits.name != "cooperative", "control groups that may be written")
    server = tmp_path / "state" / "agent" / "serving.json"
    with agent_process(tmp_path / "state", broker.address):
        await until(server.exists, seconds=DEADLINE)
        pid = json.loads(server.read_text())["pid"]
        lines = [line.split(":") for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    # "4:memory:/tiercel-...-serving" with version 1, "0::/tiercel-...-serving" with version 2.
    (group,) = [path for _, names, path in lines if names == ("memory" if limits.name == "cgroup-v1" else "")]
    assert Path(group).name.startswith("tiercel-testing-")
    assert Path(group).name.endswith("-serving")


@dataclass(frozen=True, slots=True)
class _Ordinary:
    """A process that is nobody's run."""

    pid: int

    async def cpu_seconds(self) -> float:
        """What it has used."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@contextlib.contextmanager
def _busy_process() -> Iterator[_Ordinary]:
    """It keeps the core of :func:`busy_run` busy."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield _Ordinary(process.pid)
        finally:
            process.kill()


@pytest.mark.alone
async def test_processes_and_containers_compete_on_equal_terms(
    limits: Limits, engine: DockerEngine, tmp_path: Path
) -> None:
    need(limits.container_parent, "the agent's control groups to be where the engine finds them")
    processes = ProcessRuntime(tmp_path / "minders", limits)
    async with (
        docker_runtime(engine, "mixed", cgroup_parent=limits.container_parent) as containers,
        busy_run(processes, tmp_path, CpuShare(0.25)) as process,
        busy_run(containers, tmp_path, CpuShare(0.75)) as container,
    ):
        await assert_ratio({"container": cpu_seconds(container), "process": cpu_seconds(process)}, 3.0)


@pytest.mark.alone
@pytest.mark.docker
async def test_a_training_container_follows_its_share_and_delivers(
    broker: ScriptedBroker, engine: DockerEngine, tmp_path: Path
) -> None:
    """Real training in a hardened container, through the agent, from its start over two shares to a version."""
    run = wanted_run(
        "job-1",
        module="tiercel.trainer_agent.workloads.mnist_cnn",
        runtime="docker",
        cap_cores=0.5,
        memory_bytes=2 * GIBIBYTE,
        arguments=("--epochs", "100000"),
    )
    run.spec.metric = "accuracy"
    flags = ["--docker-host", engine.host, "--docker-image", engine.image, "--cpu-cores", str(ALL_OF_THE_MACHINE)]
    with agent_process(tmp_path / "state", broker.address, *flags, runtimes="docker,process"):
        await broker.want(run)
        await until(lambda: broker.heard.progress("job-1"), seconds=DEADLINE)
        assert list(broker.heard.hellos[0].runtimes) == ["docker", "process"]
        assert engine.image in broker.heard.hellos[0].images
        async with _container_usage(engine, "job-1") as usage:
            await assert_cores(usage, 0.5)
            run.share.cpu_cap_cores = 1.0
            await broker.want(run)
            await assert_cores(usage, 1.0)
        delivery = wanted_delivery("job-1")
        delivery.metric = "accuracy"
        await broker.want(run, deliveries=[delivery])
        await until(lambda: broker.heard.outcome("job-tier-1"), seconds=DEADLINE)
        status = broker.heard.outcome("job-tier-1")
        assert status is not None
        assert status.stage == nodes_pb2.DELIVERY_STAGE_DELIVERED, status.reason
        await broker.want()
        await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
        ended = broker.heard.exit("job-1")
        assert ended is not None
        assert ended.exit_code == 0, ended.log_tail
        assert ended.cpu_seconds > 3
    assert not engine.command("ps", "--all", "--quiet", "--filter", "label=tiercel.node=testing").strip()


@contextlib.asynccontextmanager
async def _container_usage(engine: DockerEngine, run_id: str) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Tells what a run's container has used, asked of the engine and not of the agent."""
    container = engine.command("ps", "--quiet", "--filter", f"label=tiercel.run={run_id}").strip()
    async with Docker(url=engine.host) as docker:

        async def tell() -> float:
            stats = await docker._query_json(f"containers/{container}/stats", params={"stream": 0, "one-shot": 1})
            return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

        yield tell


@pytest.mark.docker
async def test_a_container_survives_its_agent_and_not_its_end(
    broker: ScriptedBroker, engine: DockerEngine, tmp_path: Path
) -> None:
    flags = ["--docker-host", engine.host, "--docker-image", engine.image]
    script = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    find = ("ps", "--all", "--quiet", "--filter", "label=tiercel.run=kept-1")
    with agent_process(tmp_path / "state", broker.address, *flags, runtimes="docker") as agent:
        await broker.want(wanted_run("kept-1", script, runtime="docker"))
        await until(lambda: broker.heard.output("kept-1"), seconds=DEADLINE)
        container = engine.command(*find)
        assert container.strip()
        await agent.kill()
        agent.start()
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        (status,) = broker.heard.hellos[1].runs
        assert status.state == nodes_pb2.RUN_STATE_RUNNING
        assert engine.command(*find) == container
        await broker.want()
        await until(lambda: broker.heard.exit("kept-1"), seconds=DEADLINE)
        assert broker.heard.output("kept-1") == b"ready\n"
        await until(lambda: not engine.command(*find).strip(), seconds=DEADLINE)


async def test_an_engine_that_is_asked_for_and_absent_is_named(broker: ScriptedBroker, tmp_path: Path) -> None:
    flags = ["--docker-host", f"unix://{tmp_path}/no.sock"]
    with agent_process(tmp_path / "state", broker.address, *flags, runtimes="docker") as agent:
        assert await agent.wait() == 2
        assert "No Docker engine answers at unix://" in agent.log.read_text()


@pytest.mark.alone
async def test_without_control_groups_a_trainer_paces_itself(broker: ScriptedBroker, tmp_path: Path) -> None:
    """An agent in this process, since on this machine it would find control groups."""
    linear = (SCRIPTS / "linear.py").read_text()  # with PyTorch, which computes for most of its time
    arguments = ("--metric", "score", "--epochs", "100000", "--step-cpu-seconds", "0.01")
    run = wanted_run("job-1", linear, arguments=arguments, target=2.0, cap_cores=0.3)
    cooperative = Cooperative(2.0)
    parts = AgentParts(
        node_id="testing",
        state_dir=tmp_path,
        capacity=Capacity(2.0, GIBIBYTE),
        limits=cooperative,
        runtimes={"process": ProcessRuntime(tmp_path / "minders", cooperative)},
        dialler=LocalDialler(lambda: broker.address, lambda: NODE_TOKEN),
    )
    leave = asyncio.Event()

    async def used() -> float:
        usages = [u for m in broker.heard.messages for u in m.heartbeat.runs if u.run_id == "job-1"]
        return usages[-1].cpu_seconds

    async with aiohttp.ClientSession() as session, Supervisor() as tasks:
        agent = tasks.start("agent", Agent(parts, tasks, session).run(leave))
        await broker.want(run)
        await until(lambda: len(broker.heard.progress("job-1")) > 1, seconds=DEADLINE)
        assert broker.heard.hellos[0].limits == "cooperative"
        # Usage comes with heartbeats, up to a second old: longer windows, and a wider tolerance than the kernel's.
        slow = await cores_used(used, 6.0)
        run.share.cpu_cap_cores = 0.0
        await broker.want(run)
        fast = await cores_used(used, 6.0)
        leave.set()
        async with asyncio.timeout(DEADLINE):
            await agent
        tasks.cancel_all()
    assert slow == pytest.approx(0.3, rel=0.3)
    assert fast > 1.5 * slow
