"""A runtime that starts runs warm, processes or containers, and runs of a tenant in it, for tests and benchmarks."""

from __future__ import annotations

import itertools
import json
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from testing.docker import DockerEngine, docker_runtime
from testing.run_handles import finish
from testing.until import until
from tiercel.trainer_agent.disk.job_folder import IMPORTS, JobFolder, ScriptFile
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.runtimes.containers.run import DockerRun
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime
from tiercel.trainer_agent.runtimes.containers.waiting_containers import WaitingContainers
from tiercel.trainer_agent.runtimes.contract import Launch, Program, RunHandle, Runtime
from tiercel.trainer_agent.runtimes.processes.runtime import ProcessRun, ProcessRuntime
from tiercel.trainer_agent.runtimes.processes.templates import Templates, TemplateSettings

_numbers = itertools.count(1)


class WarmRun(RunHandle, Protocol):
    """A run that knows how it was started."""

    is_warm: bool


RuntimeT = TypeVar("RuntimeT", bound=Runtime)
RunT = TypeVar("RunT", bound=WarmRun)


class NodeOf(Generic[RuntimeT, RunT]):
    """Starts scripts of tenants as an agent does."""

    def __init__(self, folder: Path, runtime: RuntimeT, templates: Templates | WaitingContainers) -> None:
        self._folder = folder
        self.templates = templates
        self.runtime = runtime

    def launch(self, script: str, tenant: str = "acme", **changes: object) -> Launch:
        """A job with a script, its folder prepared."""
        number = next(_numbers)
        folder = JobFolder(self._folder / "jobs" / f"job-{number}")
        folder.prepare(token="t", script=ScriptFile("train.py", script.encode()), owner=self.runtime.owner)
        launch = Launch(
            run_id=f"job-{number}-1",
            job_folder=folder.path,
            program=Program(script="train.py"),
            memory_bytes=2 * 1024**3,
            tenant=tenant,
        )
        return replace(launch, **changes)  # type: ignore[arg-type]  # fields by name

    async def start(self, script: str, tenant: str = "acme", **changes: object) -> RunT:
        """Start a script."""
        return cast("RunT", await self.runtime.start(self.launch(script, tenant, **changes)))

    async def warm_up(self, names: Sequence[str], tenant: str = "acme", **changes: object) -> Any:
        """Have something that has imported modules, as if runs had; its process or container."""
        await self.record(names, tenant, **changes)
        await self.finish("", tenant, **changes)
        await until(lambda: self.template(tenant), seconds=60)
        return self.template(tenant)

    async def order_two(self, names: Sequence[str], tenant: str = "acme", **changes: object) -> Any:
        """The same, with nothing run; only of containers."""
        for _ in range(2):
            launch = self.launch("", tenant, **changes)
            (launch.job_folder / IMPORTS).write_text(json.dumps({"names": list(names), "cpu_seconds": 9.0}))
            if launch.python:
                launch = await cast("DockerRuntime", self.runtime)._with_search_path(launch)
            assert await self.waiting.take(launch, launch.run_id) == (None, "")
        await until(lambda: self.template(tenant), seconds=60)
        return self.template(tenant)

    async def record(self, names: Sequence[str], tenant: str = "acme", **changes: object) -> None:
        """Have a run that writes down that it imported modules."""
        launch = self.launch("", tenant, **changes)
        (launch.job_folder / IMPORTS).write_text(json.dumps({"names": list(names), "cpu_seconds": 9.0}))
        await finish(await self.runtime.start(launch))

    async def finish(self, script: str, tenant: str = "acme", **changes: object) -> tuple[int, str]:
        """Start a script; exit code and output."""
        return await finish(await self.start(script, tenant, **changes))

    async def finish_warm(self, script: str, tenant: str = "acme", **changes: object) -> tuple[int, str]:
        """The same, of a script that has to be a fork of the template."""
        template = self.template(tenant)
        assert template, "there is no template"
        run = await self.start(script, tenant, **changes)
        assert not run.note, run.note
        assert run.is_warm
        return await finish(run)

    @property
    def waiting(self) -> WaitingContainers:
        """Its containers that wait."""
        assert isinstance(self.templates, WaitingContainers)
        return self.templates

    def template(self, tenant: str = "acme") -> Any:
        """The process or container of the tenant that its next run can be started from, or 0."""
        return next((each for key, each in self.templates.ready().items() if key.tenant == tenant), 0)


WarmNode = NodeOf[ProcessRuntime, ProcessRun]
ContainerNode = NodeOf[DockerRuntime, DockerRun]


def process_node(folder: Path, limits: Limits, settings: TemplateSettings | None = None) -> WarmNode:
    """A node whose runs are processes."""
    templates = Templates(folder / "imports", limits, settings)
    return NodeOf(folder, ProcessRuntime(folder / "minders", limits, templates=templates), templates)


@asynccontextmanager
async def warm_node(folder: Path, limits: Limits, settings: TemplateSettings | None = None) -> AsyncIterator[WarmNode]:
    """The same, which ends its templates when it is left."""
    node = process_node(folder, limits, settings)
    try:
        yield node
    finally:
        await node.runtime.close()


@asynccontextmanager
async def container_node(
    folder: Path, engine: DockerEngine, settings: TemplateSettings | None = None, name: str = "warm"
) -> AsyncIterator[ContainerNode]:
    """A node whose runs are containers; none is left when it is left."""
    async with docker_runtime(engine, name) as runtime:
        node: ContainerNode = NodeOf(
            folder, runtime, runtime.start_warm(folder / "imports", settings or TemplateSettings())
        )
        try:
            yield node
        finally:
            await node.waiting.close()


def interpreter(folder: Path, packages: Mapping[str, str]) -> str:
    """An interpreter with the packages of this one, and some of its own: their names and their text.

    Args:
        folder: Where to make it; not there yet.
        packages: By name; what is below a package has a dot in it.
    """
    own = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    own.mkdir(parents=True)
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (own / "node.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for name, text in packages.items():
        path = own / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(python)
