"""Runs a job's program for a few steps on this machine, in a folder and an environment as a node gives it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tiercel.core.commands import is_python
from tiercel.core.data_sets import variable_of
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import Direction, JobSpec
from tiercel.core.projects import Kind
from tiercel.core.script_checks import CHECK_VARIABLE, CheckFinding, CheckOrder, read_findings

if TYPE_CHECKING:
    from tiercel.broker.client.projects.packing import PackedProject

STEPS: Final = 3
# What is found last; a script that goes on after it is ended, as a job that was asked to stop would be.
_LAST: Final = frozenset({"checkpoint"})
_GRACE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_PIPE_SECONDS: Final = 1.0
_MOST_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended."""

    code: int | None  # its exit code; None where it took too long
    last_line: str  # of its output


@dataclass(frozen=True, slots=True)
class Trial:
    """A program to be tried."""

    spec: JobSpec  # the job's
    packed: PackedProject | None  # its project, or None
    python: str  # the interpreter that stands for the node's
    data: Mapping[str, Path]  # where its data sets are on this machine, by name
    folder: Path  # a new one, for all that comes of it

    def run(self, seconds: float, find: Callable[[CheckFinding], None], show: Callable[[bytes], object]) -> Ended:
        """Run it.

        Args:
            seconds: For how long at most.
            find: Called with each finding, when it is there.
            show: Called with its output as it comes.

        Raises:
            InvalidSpecError: There is nothing that can be started here.
        """
        work = self.folder / "work"
        work.mkdir()
        if self.packed is not None:
            _lay_out(self.packed, work)
        command = self._command()
        CheckOrder(self.spec.metric, self.spec.direction is Direction.MIN, STEPS).write(self.folder)
        end, their_end = os.pipe()
        output = _Output(end, show)
        try:
            process = subprocess.Popen(
                command,
                cwd=work,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=their_end,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise wrong_field("command", f"{command[0]!r} cannot be started ({error.strerror})") from None
        finally:
            os.close(their_end)
        try:
            code = self._wait(process, seconds, find)
        finally:
            _end(process)
            last_line = output.close()
        return Ended(code, last_line)

    def _command(self) -> list[str]:
        spec = self.spec
        if spec.script is not None:
            script = self.folder / spec.script.name
            script.write_bytes(spec.script.content)
            return [self.python, str(script), *spec.arguments]
        if spec.module:
            return [self.python, "-m", spec.module, *spec.arguments]
        if not spec.command:
            raise wrong_field(
                "image", "its own command is not tried on this machine; name a command, or submit the job"
            )
        first = self.python if is_python(spec.command[0]) else spec.command[0]
        return [first, *spec.command[1:], *spec.arguments]

    def _environment(self) -> dict[str, str]:
        """As a node's: nothing of this shell but where programs are, and the secrets that it has."""
        threads = str(max(1, round(self.spec.resources.cpu_cores)))
        found = {name: value for name in ("PATH", "LD_LIBRARY_PATH") if (value := os.environ.get(name))}
        found |= {name: value for name in self.spec.secrets if (value := os.environ.get(name)) is not None}
        found |= {variable_of(name): str(path.resolve()) for name, path in self.data.items()}
        if (self.spec.ranks or self.spec.resources.accelerators) > 1:  # the first of them alone
            found |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        return {
            **found,
            "PATH": f"{Path(self.python).parent}:{found.get('PATH', os.defpath)}",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **self.spec.env,
            "HOME": str(self.folder / "work"),
            "MKL_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
            "TIERCEL_SCRATCH": str(self.folder),
            CHECK_VARIABLE: str(self.folder),
        }

    def _wait(
        self, process: subprocess.Popen[bytes], seconds: float, find: Callable[[CheckFinding], None]
    ) -> int | None:
        known, deadline = 0, time.monotonic() + seconds
        while True:
            code = process.poll()
            for finding in read_findings(self.folder, known):
                known += 1
                find(finding)
                if finding.check in _LAST:
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            if code is not None or time.monotonic() > deadline:
                return code
            time.sleep(_POLL_SECONDS)  # it tells what it found by a file, and its end to nobody but its parent


class _Output:
    """Reads what a program says, so that it never has to wait, and keeps the last line."""

    def __init__(self, end: int, show: Callable[[bytes], object]) -> None:
        self._end, self._show, self._last, self._rest = end, show, b"", b""
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def close(self) -> str:
        """What it said last; waits a moment for what is on its way."""
        self._thread.join(_PIPE_SECONDS)
        if not self._thread.is_alive():  # else somebody who left the group has the other end
            os.close(self._end)
        return (self._rest.strip() or self._last).decode(errors="replace")

    def _read(self) -> None:
        while piece := os.read(self._end, 65536):
            self._show(piece)
            *lines, rest = (self._rest + piece).split(b"\n")
            self._rest = rest[-_MOST_LINE_BYTES:]
            self._last = next((line.strip() for line in reversed(lines) if line.strip()), self._last)


def _lay_out(packed: PackedProject, work: Path) -> None:
    """Put the files of a project into a folder: those that are sent, and no other."""
    for path, entry in packed.entries().items():
        place = work / path
        if entry.kind is Kind.FOLDER:
            place.mkdir(exist_ok=True)
        elif entry.kind is Kind.LINK:
            place.symlink_to(entry.content)
        else:
            shutil.copy(packed.files[entry.content][0], place)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of it, with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
