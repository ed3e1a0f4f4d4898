"""A process runtime with templates, and runs of a tenant in it, for tests and benchmarks."""

from __future__ import annotations

import itertools
import json
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from testing.run_handles import finish
from testing.until import until
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.runtimes.contract import Launch, Program
from tiercel.trainer_agent.runtimes.import_records import IMPORTS
from tiercel.trainer_agent.runtimes.process import ProcessRun, ProcessRuntime
from tiercel.trainer_agent.runtimes.templates import Templates, TemplateSettings

_numbers = itertools.count(1)


class WarmNode:
    """Starts scripts of tenants as an agent does.

    Args:
        folder: For all that it keeps.
        limits: Confine runs.
        settings: Of its templates.
    """

    def __init__(self, folder: Path, limits: Limits, settings: TemplateSettings | None = None) -> None:
        self._folder = folder
        self.templates = Templates(folder / "imports", limits, settings)
        self.runtime = ProcessRuntime(folder / "minders", limits, templates=self.templates)

    def launch(self, script: str, tenant: str = "acme", **changes: object) -> Launch:
        """A job with a script, its folder prepared."""
        number = next(_numbers)
        folder = JobFolder(self._folder / "jobs" / f"job-{number}")
        folder.prepare(token="t", script=ScriptFile("train.py", script.encode()), owner=None)
        launch = Launch(
            run_id=f"job-{number}-1",
            job_folder=folder.path,
            program=Program(script="train.py"),
            memory_bytes=2 * 1024**3,
            tenant=tenant,
        )
        return replace(launch, **changes)  # type: ignore[arg-type]  # fields by name

    async def start(self, script: str, tenant: str = "acme", **changes: object) -> ProcessRun:
        """Start a script."""
        return await self.runtime.start(self.launch(script, tenant, **changes))

    async def warm_up(self, names: Sequence[str], tenant: str = "acme", **changes: object) -> int:
        """Have a template that has imported modules, as if runs had; its process."""
        await self.record(names, tenant, **changes)
        await self.finish("", tenant, **changes)
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

    def template(self, tenant: str = "acme") -> int:
        """The process of the tenant's template that runs can be forked from, or 0."""
        return next((pid for key, pid in self.templates.ready().items() if key.tenant == tenant), 0)


@asynccontextmanager
async def warm_node(folder: Path, limits: Limits, settings: TemplateSettings | None = None) -> AsyncIterator[WarmNode]:
    """A node that ends its templates when it is left."""
    node = WarmNode(folder, limits, settings)
    try:
        yield node
    finally:
        await node.runtime.close()


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
