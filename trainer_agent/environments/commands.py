"""Runs the commands that build an environment: with nothing of the agent's, within time and room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.tasks import run_until_one_ends
from tiercel.trainer_agent.environments.folders import disk_bytes
from tiercel.trainer_agent.environments.index import without_credentials
from tiercel.trainer_agent.limits.entering import ENDED_FIRST, entering

_LOOK_SECONDS: Final = 2.0
_LINE_BYTES: Final = 64 * 1024
_MOST_OUTPUT_BYTES: Final = 1024 * 1024
_LAST_LINES: Final = 12
_LAST_CHARACTERS: Final = 2000
# After whom training and answers go.
_NICENESS: Final = 10
_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class CommandError(Exception):
    """A command failed; the message is what it said last."""


class LimitError(Exception):
    """A build takes too long or too much room; the message says which."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What all commands of one build may take."""

    ends_at: float  # when the last of them has to be done, by the loop's clock
    size_bytes: int  # what the folder may have on the disk
    reserve_bytes: int  # what the disk has to have left
    entry_files: tuple[Path, ...] = ()  # of the confines that they enter, where there are any


async def run(
    command: Sequence[str],
    folder: Path,
    limits: CommandLimits,
    say: Callable[[str], None],
    *,
    held: int,
) -> str:
    """Run a command to its end; returns what it wrote.

    Args:
        command: The program by its path, and its arguments.
        folder: Of the build: where it works, and what is measured.
        limits: What it may take.
        say: Given each line that it writes.
        held: A descriptor that it keeps open, so that it is known to live where the agent has died.

    Raises:
        CommandError: It ended with an error.
        LimitError: It took too long or too much room.
        OSError: It cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *entering(limits.entry_files, command, ended_first=ENDED_FIRST),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=_LINE_BYTES,
        cwd=folder,
        env=environment_of(folder),
        start_new_session=True,
        pass_fds=(held,),
    )
    written: list[str] = []
    try:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
        async with asyncio.timeout_at(limits.ends_at):
            await run_until_one_ends(output=_follow(process, written, say), size=_watch(folder, limits))
            code = await process.wait()
    except TimeoutError:
        raise LimitError("it takes longer than the node gives it") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if code != 0:
        last = deque((line.strip() for line in written if line.strip() and not line.startswith("Using ")), _LAST_LINES)
        raise CommandError(" ".join(last)[-_LAST_CHARACTERS:] or f"{command[0]} ended with code {code}")
    return "\n".join(written)


def environment_of(folder: Path) -> dict[str, str]:
    """What a command finds in its environment: nothing that somebody else should not read."""
    passed_on = {name: value for name in _PASSED_ON if (value := os.environ.get(name)) and "@" not in value}
    own = str(folder)
    return passed_on | {
        "HOME": own,
        "LANG": "C.UTF-8",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",  # nothing is changed there; as an option, older ones would refuse it
        "PIP_CONFIG_FILE": str(folder / "pip.conf"),
        "PYTHONDONTWRITEBYTECODE": "1",  # what is to stay is compiled when all is there
        "TMPDIR": own,
        "UV_NO_PROGRESS": "1",
    }


async def _follow(process: asyncio.subprocess.Process, written: list[str], say: Callable[[str], None]) -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    size = 0
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # a line that is longer than any should be: it is left out
            continue
        if not line:
            return
        size += len(line)
        if size <= _MOST_OUTPUT_BYTES:
            text = without_credentials(line.decode(errors="replace").rstrip())
            written.append(text)
            say(text)


async def _watch(folder: Path, limits: CommandLimits) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if await asyncio.to_thread(disk_bytes, folder) > limits.size_bytes:
            raise LimitError(f"it has more than the {limits.size_bytes} bytes that the node has for environments")
        if shutil.disk_usage(folder).free < limits.reserve_bytes:
            raise LimitError(f"the node's disk has less than {limits.reserve_bytes} bytes left")
