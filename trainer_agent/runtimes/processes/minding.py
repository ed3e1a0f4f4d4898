"""The agent's side of :mod:`.minder`: starts minders, and finds those that live on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tiercel.trainer_agent.errors import RunFailedError, WarmStartError
from tiercel.trainer_agent.runtimes.contract import READ_BYTES
from tiercel.trainer_agent.runtimes.processes import minder
from tiercel.trainer_agent.runtimes.processes.identity import ProcessIdentity
from tiercel.trainer_agent.runtimes.warm.script import COLD, ENTERED

_START_SECONDS: Final = 60.0
_FORK_SECONDS: Final = 20.0
_MOST_MESSAGE_BYTES: Final = 4096
# Where Python and its libraries are found.
_OF_MINDER: Final = ("PATH", "LD_LIBRARY_PATH", "LANG")


class Minded:
    """A script with its minder. Made by :meth:`start` or :meth:`find`.

    Args:
        child: The minder where this agent started it, to be buried once it is dead.
    """

    def __init__(
        self,
        folder: Path,
        minder: ProcessIdentity,
        script: ProcessIdentity,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.script = script
        self._folder = folder
        self._minder = minder
        self._child = child
        self._ended = asyncio.Event()
        self._grew = asyncio.Event()
        self._pidfd = _open(minder)
        if self._pidfd is None:
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._note_end)

    @classmethod
    async def start(
        cls, folder: Path, command: Sequence[str], working_directory: Path, environment: Mapping[str, str]
    ) -> Self:
        """Start a command with a minder.

        Args:
            folder: The minder's, not there yet.
            command: The program, by its path, and its arguments.
            working_directory: Of the command.
            environment: Of the command; the minder has none of it.

        Raises:
            OSError: It cannot be started.
            RunFailedError: The minder does not say that it was; says why.
        """
        folder.mkdir(parents=True, mode=0o700)
        said, writer = os.pipe2(os.O_CLOEXEC)
        given = in_memory(minder.pack_environment(environment))
        try:
            # -P: nothing of the folder that the agent was started in is imported.
            child = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-P", "-m", minder.__name__, str(folder), str(working_directory), *command],
                stdin=given,
                stdout=writer,
                stderr=writer,
                env={name: os.environ[name] for name in _OF_MINDER if name in os.environ},
                start_new_session=True,
            )
        except BaseException:
            os.close(said)
            raise
        finally:
            os.close(given)
            os.close(writer)
        message = await _read_message(said)
        if message == minder.STARTED and (known := minder.read_processes(folder)) is not None:
            return cls(folder, *known, child)
        child.kill()
        await asyncio.to_thread(child.wait)
        why = message.decode(errors="replace").strip().splitlines() or ["it did not say why"]
        raise RunFailedError(f"The training process could not be started: {why[-1].rstrip('.')}.")

    @classmethod
    async def fork(cls, folder: Path, order: bytes, send: Callable[[Sequence[int]], None]) -> Self:
        """Have a template fork a script with a minder.

        Args:
            folder: The minder's, not there yet.
            order: What the fork reads.
            send: Hands the template two descriptors: of a file with the order, and of a pipe to answer by.

        Raises:
            OSError: The folder cannot be made.
            WarmStartError: There is no such script, nor will there be; nothing of it has run, and the folder is gone.
        """
        folder.mkdir(parents=True, mode=0o700)
        said, writer = os.pipe2(os.O_CLOEXEC)
        given = in_memory(order)
        try:
            send((given, writer))
        except OSError as error:
            os.close(said)
            shutil.rmtree(folder, ignore_errors=True)
            message = f"its template takes no order ({error.strerror})"
            raise WarmStartError(message, is_templates_fault=True) from error
        finally:
            os.close(given)
            os.close(writer)
        answer = await _read_message(said, _FORK_SECONDS)
        if sorted(answer.splitlines(keepends=True)) == sorted((minder.STARTED, ENTERED)):
            known = minder.read_processes(folder)
            if known is not None:
                return cls(folder, *known)
        await asyncio.to_thread(end_leftovers, folder)
        of_run = answer.startswith(COLD)
        why = answer.removeprefix(COLD).replace(minder.STARTED, b"").decode(errors="replace").strip()
        otherwise = "it died before its first line" if minder.STARTED in answer else "its template has ended"
        raise WarmStartError(why or otherwise, is_templates_fault=not of_run)

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """A script that an earlier life of the agent started, be it over or not; None if there is none to be found.

        A script whose minder was killed, or that had not begun when the agent died, cannot be found.
        """
        known = minder.read_processes(folder)
        if known is None or (_read_exit(folder) is None and not known[0].is_alive()):
            return None
        return cls(folder, *known)

    @property
    def has_ended(self) -> bool:
        """Whether the script has ended and its exit code is known, if it ever will be."""
        return self._ended.is_set()

    async def wait(self) -> int | None:
        """Wait until the script has ended; its exit code, or None where somebody ended the minder before."""
        await self._ended.wait()
        return _read_exit(self._folder)

    async def output(self, offset: int) -> AsyncGenerator[bytes]:
        """Output from a byte on, as it comes, until the end. What was taken is removed; to be read once."""
        spooled = SpooledOutput(self._folder, offset)
        pipe = os.open(self._folder / minder.GREW, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe, self._note_growth, pipe)
        try:
            over = False
            while not over:
                # The pipe tells nothing if the minder ended before it was opened.
                over = self.has_ended
                self._grew.clear()
                while data := spooled.take():
                    yield data
                    await asyncio.sleep(0)  # a script that writes without end is not alone here
                if not over:
                    await self._grew.wait()
        finally:
            loop.remove_reader(pipe)
            os.close(pipe)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the script's process group, if it is the script's still."""
        if self.script.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.script.pid, number)

    def close(self) -> None:
        """Let go of it, and of what was kept; the script must have ended. Doing it twice is harmless."""
        self._note_end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _note_growth(self, pipe: int) -> None:
        if not os.read(pipe, READ_BYTES):
            asyncio.get_running_loop().remove_reader(pipe)
        self._grew.set()

    def _note_end(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._ended.set()
        self._grew.set()


class SpooledOutput:
    """What a minder has kept of its script's output."""

    def __init__(self, folder: Path, offset: int) -> None:
        self._folder = folder
        self._offset = offset

    def take(self) -> bytes:
        """The next bytes, or none. What was returned before is taken to be in safe hands: it is removed."""
        starts = sorted(int(path.name[len(minder.OUTPUT) :]) for path in self._folder.glob(f"{minder.OUTPUT}*"))
        while len(starts) > 1 and starts[1] <= self._offset:
            (self._folder / f"{minder.OUTPUT}{starts.pop(0)}").unlink()
        if not starts:
            return b""
        self._offset = max(self._offset, starts[0])
        with (self._folder / f"{minder.OUTPUT}{starts[0]}").open("rb") as segment:
            data = os.pread(segment.fileno(), READ_BYTES, self._offset - starts[0])
        self._offset += len(data)
        return data


def end_leftovers(folder: Path) -> None:
    """End a script that nobody takes over, and its minder; blocks for a moment."""
    # First of all: a minder that has not let its script begin finds nowhere to write that it does.
    doomed = folder.with_name(f".{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    for process in reversed(minder.read_processes(doomed) or ()):
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(doomed, ignore_errors=True)


def in_memory(content: bytes) -> int:
    """A descriptor that the content is read from, on no disk and in no folder."""
    descriptor = os.memfd_create("environment", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(process: ProcessIdentity) -> int | None:
    """A descriptor that becomes readable when the process ends; None if it has."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.is_alive():  # the descriptor is of this very process then
        return descriptor
    os.close(descriptor)
    return None


def _read_exit(folder: Path) -> int | None:
    try:
        return int((folder / minder.EXIT).read_text())
    except (FileNotFoundError, ValueError):
        return None


async def _read_message(descriptor: int, seconds: float = _START_SECONDS) -> bytes:
    """What a minder says until it begins to mind its script, or ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    try:
        async with asyncio.timeout(seconds):
            message = b""
            while (data := await reader.read(_MOST_MESSAGE_BYTES)) and len(message) < _MOST_MESSAGE_BYTES:
                message += data
            return message
    except TimeoutError:
        return b"it did not begin within %d s" % seconds
    finally:
        transport.close()
