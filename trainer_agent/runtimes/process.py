"""Runs as processes of this machine: the zero-setup default. No isolation beyond the limits; for code one trusts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.contract import CpuShare, Limits, RunLimits, Usage
from tiercel.trainer_agent.limits.mps import Mps
from tiercel.trainer_agent.limits.turns import AS_THE_KERNEL_DOES, RunTurns, Turns
from tiercel.trainer_agent.runtimes.contract import READ_BYTES, Exit, Launch

_log = logging.getLogger(__name__)

_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "TZ")
"""Variables of the agent that a run gets too: where programs are found, and how number crunching fits the CPU."""

# Enters the control groups before anything of the job runs, so that no child of it can be left outside.
_ENTER: Final = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 126; shift; n=$((n-1)); done; exec "$@"'

_START_TIME_TOLERANCE_SECONDS: Final = 0.05


class ProcessRuntime:
    """Starts runs as process groups of their own.

    Args:
        limits: Enforces their shares.
        turns: How runs take turns.
        mps: The daemon that runs use accelerators through, if there is one.
    """

    name = "process"
    owner = None

    def __init__(self, limits: Limits, turns: Turns = AS_THE_KERNEL_DOES, mps: Mps | None = None) -> None:
        self._limits = limits
        self._mps = mps
        self._turns = turns

    async def start(self, launch: Launch) -> ProcessRun:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        folder = str(launch.job_folder)
        if not (launch.program.script or launch.program.module):
            raise RunFailedError(
                "The process runtime has no image whose command it could run: give the job a script or a module, "
                "or ask for the docker runtime."
            )
        limits = self._open_limits(launch)
        try:
            output, writer = await _open_pipe()
            try:
                process = await self._spawn(launch, folder, limits, writer)
            except BaseException:
                output.close()
                raise
            finally:
                os.close(writer)
        except OSError as error:
            limits.close()
            raise RunFailedError(f"The training process could not be started: {error}.") from error
        turns = RunTurns(self._turns, launch.cpu_cores)
        turns.begin(process.pid, launch.share)
        limits.adopt(process.pid)
        return ProcessRun(launch.run_id, process, output, limits, turns)

    async def images(self) -> Sequence[str]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`; always empty."""
        return ()

    async def remove_leftovers(self, records: Sequence[dict[str, str | int | float]]) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""
        for record in records:
            pid, started_at = int(record["pid"]), float(record["started_at"])
            if _is_same_process(pid, started_at):
                _log.warning("ending process group %d, left over from an earlier life of this agent", pid)
                _signal_group(pid, signal.SIGKILL)
        await asyncio.to_thread(self._limits.remove_leftovers)

    async def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.Runtime`."""

    def _open_limits(self, launch: Launch) -> RunLimits:
        try:
            return self._limits.open_run(
                launch.run_id, cpu_cores=launch.cpu_cores, memory_bytes=launch.memory_bytes, share=launch.share
            )
        except OSError as error:
            raise RunFailedError(f"The limits of the training process could not be set: {error}.") from error

    async def _spawn(self, launch: Launch, folder: str, limits: RunLimits, writer: int) -> asyncio.subprocess.Process:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        through_mps = self._mps.environment(launch.accelerators) if self._mps is not None else {}
        entry = [str(path) for path in limits.entry_files]
        enter = ["/bin/sh", "-c", _ENTER, "tiercel-run", str(len(entry)), *entry]
        return await asyncio.create_subprocess_exec(
            *enter,
            *launch.program.command(sys.executable, folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            cwd=launch.job_folder / "work",
            env=inherited | launch.environment(folder) | through_mps,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class _Output:
    """The agent's end of a run's output.

    Not asyncio's own pipe: with that, waiting for a process would wait for everybody who still holds the pipe, and so
    for a child that the script left behind.
    """

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport

    def close(self) -> None:
        """Let go of the pipe."""
        self.transport.close()


class ProcessRun:
    """A run that is a process group.

    Args:
        run_id: Name of the run.
        process: Its leader.
        output: What it writes.
        limits: Its confines.
        turns: How it takes turns with other runs.
    """

    def __init__(
        self,
        run_id: str,
        process: asyncio.subprocess.Process,
        output: _Output,
        limits: RunLimits,
        turns: RunTurns,
    ) -> None:
        self._run_id = run_id
        self._process = process
        self._output = output
        self._limits = limits
        self._turns = turns
        self._started_at = _start_time(process.pid)
        self._closed = False

    @property
    def description(self) -> str:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return f"process {self._process.pid}"

    @property
    def record(self) -> dict[str, str | int | float]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        return {"pid": self._process.pid, "started_at": self._started_at}

    async def output(self) -> AsyncIterator[bytes]:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        while chunk := await self._output.reader.read(READ_BYTES):
            yield chunk

    async def wait(self) -> Exit:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        code = await self._process.wait()
        await self._end_all()
        if self._limits.ran_out_of_memory():
            return Exit(code, "The run used more memory than its limit and was ended by the kernel.")
        return Exit(code)

    async def stop(self, grace_seconds: float) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._process.returncode is None:
            _signal_group(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._process.wait()
        if self._process.returncode is None:
            _signal_group(self._process.pid, signal.SIGKILL)
        await self.wait()

    async def apply_share(self, share: CpuShare) -> None:
        """See :class:`~tiercel.trainer_agent.runtimes.contract.RunHandle`."""
        if self._closed or self._process.returncode is not None:
            return
        try:
            self._limits.apply(share)
        except OSError as error:
            raise RunFailedError(f"The share of run {self._run_id} could not be set: {error}.") from error
        self._turns.apply(self.pids, share)

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
        if self._process.returncode is None:
            await self.stop(0.0)
        self._closed = True
        self._output.close()
        await asyncio.to_thread(self._limits.close)

    async def _end_all(self) -> None:
        """End what the first process left behind: its group, and whoever else is inside its limits."""
        _signal_group(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._limits.kill_all)


async def _open_pipe() -> tuple[_Output, int]:
    """A pipe: the agent's end, and the descriptor to write to."""
    loop = asyncio.get_running_loop()
    descriptor, writer = os.pipe2(os.O_CLOEXEC)
    reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    return _Output(reader, transport), writer


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _start_time(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return 0.0


def _is_same_process(pid: int, started_at: float) -> bool:
    return pid > 1 and abs(_start_time(pid) - started_at) < _START_TIME_TOLERANCE_SECONDS
