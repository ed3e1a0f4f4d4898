"""Real processes and real containers, each runtime in turn."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testing.docker import DockerEngine, docker_runtime
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.cpu_priority import CpuPriority
from tiercel.trainer_agent.limits.detect import detect
from tiercel.trainer_agent.runtimes.contract import Launch, Program, RunHandle, Runtime
from tiercel.trainer_agent.runtimes.processes.runtime import ProcessRuntime

GIBIBYTE = 1024**3
PRIORITY = CpuPriority(slice_seconds=0.02, node_cores=2.0)
_numbers = itertools.count(1)


@pytest.fixture
def limits() -> Iterator[Limits]:
    limits = detect(f"contract-{os.getpid()}", 2.0)
    yield limits
    limits.close()


@pytest.fixture(params=["process", "docker"])
async def runtime(
    request: pytest.FixtureRequest, limits: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runtime]:
    monkeypatch.setenv("A_SECRET", "of the agent")
    if request.param == "process":
        yield ProcessRuntime(tmp_path / "minders", limits, PRIORITY)
        return
    engine: DockerEngine = request.getfixturevalue("engine")
    async with docker_runtime(engine, "contract", cgroup_parent=limits.container_parent, priority=PRIORITY) as docker:
        yield docker


@pytest.fixture
def start(runtime: Runtime, tmp_path: Path) -> Callable[..., object]:
    async def _start(script: str, job: str = "job", **changes: object) -> RunHandle:
        folder = JobFolder(tmp_path / "jobs" / job)
        folder.prepare(token="t", script=ScriptFile("train.py", script.encode()), owner=runtime.owner)
        launch = Launch(
            run_id=f"job-{next(_numbers)}",
            job_folder=folder.path,
            program=Program(script="train.py"),
            memory_bytes=GIBIBYTE,
        )
        return await runtime.start(replace(launch, **changes))  # type: ignore[arg-type]  # fields by name

    return _start


@pytest.fixture
async def next_life(
    runtime: Runtime, request: pytest.FixtureRequest, limits: Limits, tmp_path: Path
) -> AsyncIterator[Runtime]:
    """The runtime as it is after the agent died and was started again."""
    if runtime.name == "process":
        yield ProcessRuntime(tmp_path / "minders", limits, PRIORITY)
        return
    engine: DockerEngine = request.getfixturevalue("engine")
    async with docker_runtime(engine, "contract", cgroup_parent=limits.container_parent, priority=PRIORITY) as docker:
        yield docker
