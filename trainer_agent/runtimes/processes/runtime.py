"""Runs as processes of this machine: the zero-setup default. No isolation beyond the limits; for code one trusts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Final

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.errors import RunFailedError, WarmStartError
from tiercel.trainer_agent.limits.contract import CpuShare, Limits, RunLimits, Usage
from tiercel.trainer_agent.limits.cpu_priority import KERNEL_DEFAULT, CpuPriority, RunPriority
from tiercel.trainer_agent.limits.entering import ENDED_FIRST, entering
from tiercel.trainer_agent.limits.mps import Mps
from tiercel.trainer_agent.limits.thread_scheduling import family
from tiercel.trainer_agent.runtimes import ranks
from tiercel.trainer_agent.runtimes.contract import OUT_OF_MEMORY, Exit, Launch, Output
from tiercel.trainer_agent.runtimes.processes.minding import Minded, end_leftovers
from tiercel.trainer_agent.runtimes.processes.templates import Templates
from tiercel.trainer_agent.runtimes.warm.import_records import Key
from tiercel.trainer_agent.runtimes.warm.script import WarmOrder

_log = logging.getLogger(__name__)

_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "TZ")
"""Variables of the agent that a run gets too: where programs are found, and how number crunching fits the CPU."""

_NOBODY_KNOWS: Final = Exit(-9, "Somebody ended the process that keeps its output and its exit code.")


class ProcessRuntime:
    """Starts runs as process groups of their own, each with a minder that outlives the agent."""

    name = "process"
    owner = None
    image_python = None

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        priority: CpuPriority = KERNEL_DEFAULT,
        mps: Mps | None = None,
        templates: Templates | None = None,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._mps = mps
        self._priority = priority
        self._templates = templates

    async def start(self, launch: Launch) -> ProcessRun:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        if launch.program.is_images:
            raise RunFailedError(
                "The process runtime has no image whose command it could run: give the job a script or a command, "
                "or ask for the docker runtime."
            )
        limits = self._open_limits(launch)
        try:
            minded, note = await self._fork_minded(launch, limits)
            is_warm = minded is not None
            if minded is None:
                minded = await self._start_minded(launch, limits)
        except OSError as error:
            limits.close()
            raise RunFailedError(f"The training process could not be started: {error}.") from error
        except RunFailedError:
            limits.close()
            raise
        priority = RunPriority(self._priority, launch.cpu_cores)
        priority.begin(minded.script.pid, launch.share)
        limits.adopt(minded.script.pid)
        return ProcessRun(launch.run_id, minded, limits, priority, note, is_warm=is_warm)

    async def adopt(self, launch: Launch) -> ProcessRun | None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        minded = Minded.find(self._folder / launch.run_id)
        if minded is None:
            return None
        limits = self._limits.reopen_run(launch.run_id, cpu_cores=launch.cpu_cores, share=launch.share)
        if limits is None:
            limits = self._open_limits(launch)
            _move_into(limits, minded)
        priority = RunPriority(self._priority, launch.cpu_cores)
        if not minded.has_ended:
            priority.resume(minded.script.pid)
            limits.adopt(minded.script.pid)
        return ProcessRun(launch.run_id, minded, limits, priority)

    async def images(self) -> Sequence[str]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`; always empty."""
        return ()

    async def remove_leftovers(self, kept: Collection[str]) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        try:
            await asyncio.to_thread(self._remove_leftovers, kept)
        except OSError as error:
            raise SetupError(
                f"What an earlier life of this agent left behind cannot be removed ({error}). Remove {self._folder} "
                "and end its processes, then start the agent again."
            ) from error

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        if self._templates is not None:
            await self._templates.close()

    def _remove_leftovers(self, kept: Collection[str]) -> None:
        for folder in self._folder.glob("[!.]*"):
            if folder.name not in kept:
                _log.warning("ending run %s, left over from an earlier life of this agent", folder.name)
                end_leftovers(folder)
        self._limits.remove_leftovers(kept)

    def _open_limits(self, launch: Launch) -> RunLimits:
        try:
            return self._limits.open_run(
                launch.run_id, cpu_cores=launch.cpu_cores, memory_bytes=launch.memory_bytes, share=launch.share
            )
        except OSError as error:
            raise RunFailedError(f"The limits of the training process could not be set: {error}.") from error

    async def _start_minded(self, launch: Launch, limits: RunLimits) -> Minded:
        program = launch.command(_python_of(launch), str(launch.job_folder), signals=ranks.BY_GROUP)
        if launch.program.command_line and not program[0].startswith("/"):
            program = ["/usr/bin/env", *program]  # finds it by PATH, or from the working directory
        return await Minded.start(
            self._folder / launch.run_id,
            entering(limits.entry_files, program, ended_first=ENDED_FIRST),
            launch.job_folder / launch.working_folder,
            self._environment(launch),
        )

    async def _fork_minded(self, launch: Launch, limits: RunLimits) -> tuple[Minded | None, str]:
        """The run as a fork of a template, where there is one for it; else why not, if that is worth a word."""
        is_python = bool(launch.program.script or launch.program.module)
        if self._templates is None or not (launch.warm and launch.tenant and is_python):
            return None, ""
        if launch.ranks > 1:
            return None, f"started cold: so is each of {launch.ranks} ranks"
        key = Key(launch.tenant, _python_of(launch))
        template = await self._templates.claim(key, launch.job_folder, _inherited(launch))
        if template is None:
            return None, ""
        working_directory = str(launch.job_folder / launch.working_folder)
        order = WarmOrder(
            folder=str(self._folder / launch.run_id),
            minder_entry=[str(file) for file in self._limits.beside_agent],
            script_entry=[str(file) for file in limits.entry_files],
            ended_first=ENDED_FIRST,
            script=f"{launch.job_folder}/program/{launch.program.script}" if launch.program.script else "",
            module=launch.program.module,
            arguments=launch.program.arguments,
            working_directory=working_directory,
            # As the shell that starts a cold one says it.
            environment=self._environment(launch) | {"PWD": working_directory},
            threads=launch.threads,
            umask=_umask(),
        )
        try:
            minded = await Minded.fork(self._folder / launch.run_id, order.to_bytes(), template.send)
        except WarmStartError as error:
            await self._templates.note_failure(key, error)
            return None, f"started cold: {error.message}"
        self._templates.note_fork(key)
        return minded, ""

    def _environment(self, launch: Launch) -> dict[str, str]:
        folder = str(launch.job_folder)
        through_mps = self._mps.environment(launch.accelerators) if self._mps is not None else {}
        return _inherited(launch) | launch.environment(folder) | launch.places(in_container=False) | through_mps


class ProcessRun:
    """A run that is a process group.

    Args:
        note: What its tenant should read about how it was started.
        is_warm: Whether it was forked from a template.
    """

    image_id = ""

    def __init__(
        self,
        run_id: str,
        minded: Minded,
        limits: RunLimits,
        priority: RunPriority,
        note: str = "",
        *,
        is_warm: bool = False,
    ) -> None:
        self.note = note
        self.is_warm = is_warm
        self._run_id = run_id
        self._minded = minded
        self._limits = limits
        self._priority = priority
        self._closed = False

    @property
    def description(self) -> str:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return f"process {self._minded.script.pid}{', started warm' * self.is_warm}"

    async def output(self, position: str = "") -> AsyncIterator[Output]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`; a position is a number of bytes."""
        offset = int(position or 0)
        async with contextlib.aclosing(self._minded.output(offset)) as chunks:
            async for data in chunks:
                offset += len(data)
                yield Output(data, str(offset))

    async def wait(self) -> Exit:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        code = await self._minded.wait()
        await self._end_all()
        if code is None:
            return _NOBODY_KNOWS
        if self._limits.ran_out_of_memory():
            return Exit(code, OUT_OF_MEMORY)
        return Exit(code)

    async def stop(self, grace_seconds: float) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if not self._minded.has_ended:
            self._minded.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._minded.wait()
        if not self._minded.has_ended:
            self._minded.signal(signal.SIGKILL)
        await self.wait()

    async def apply_share(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._closed or self._minded.has_ended:
            return
        try:
            self._limits.apply(share)
        except OSError as error:
            raise RunFailedError(f"The share of run {self._run_id} could not be set: {error}.") from error
        self._priority.apply(self.pids, share)

    async def usage(self) -> Usage:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return self._limits.usage()

    def pids(self) -> list[int]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return self._limits.pids()

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._closed:
            return
        if not self._minded.has_ended:
            await self.stop(0.0)
        self._closed = True
        await asyncio.to_thread(self._limits.close)
        self._minded.close()

    async def _end_all(self) -> None:
        """End what the first process left behind: its group, and whoever else is inside its limits."""
        self._minded.signal(signal.SIGKILL)
        await asyncio.to_thread(self._limits.kill_all)


def _python_of(launch: Launch) -> str:
    return launch.python or sys.executable


def _inherited(launch: Launch) -> dict[str, str]:
    """What a run has of the agent's environment."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if launch.python:  # first, so that what it starts by name is of the same environment
        own = str(Path(launch.python).parent)
        inherited["PATH"] = os.pathsep.join(filter(None, (own, inherited.get("PATH", ""))))
    return inherited


def _umask() -> int:
    """The agent's, which its runs have; to ask the C library would be to change it for a moment."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


def _move_into(limits: RunLimits, minded: Minded) -> None:
    """Confine a script that was started where shares were enforced in another way, or under another name."""
    for pid in family(minded.script.pid):
        for file in limits.entry_files:
            with contextlib.suppress(ProcessLookupError):
                file.write_text(str(pid))
