"""Python processes that begin with their modules loaded: forks of one template, for tests that start many alike."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from testing.hosts import Host

ROOT = Path(__file__).resolve().parents[1]
# What a script that trains and hands its model over has loaded at its end.
TRAINING = (
    "numpy",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "onnx.checker",
    "onnxruntime",
    "onnxscript",
    "tiercel.trainer",
)
_REQUEST_BYTES = 1 << 20
_STREAMS = 3
_LOAD_SECONDS = 240.0
_NUMBER_BYTES = 4


class WarmProcess:
    """A script that the template became.

    Args:
        status: Where its process id is told, and later how it ended.
        output: The file that it prints to, if it is to be read.
    """

    def __init__(self, status: socket.socket, output: BinaryIO | None) -> None:
        self.returncode: int | None = None
        self._status, self._output = status, output
        self.pid = self._told()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._wait(0.0)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Wait for its end; what it printed."""
        self.wait(timeout)
        if self._output is not None and not self._output.closed:
            self._output.seek(0)
            with self._output:
                return self._output.read().decode(), None
        return "", None

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(seconds)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self.returncode = os.waitstatus_to_exitcode(self._told())
                self._status.close()
        return self.returncode

    def _told(self) -> int:
        told = self._status.recv(_NUMBER_BYTES)
        assert len(told) == _NUMBER_BYTES, "the template did not say what became of a script"
        return int.from_bytes(told, "little")


class WarmPython:
    """The template.

    Args:
        environment: Of the template; what libraries read when they are loaded has to be there.
        modules: What it loads.
        host: Where it and its forks run; this machine when left out.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str], host: Host | None = None) -> None:
        self._host = host
        self._socket, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with others:
            command = [sys.executable, "-m", "testing.warm_python", str(others.fileno()), *modules]
            self._process = subprocess.Popen(
                command if host is None else host.command(*command),
                stdin=subprocess.DEVNULL,
                pass_fds=[others.fileno()],
                cwd=ROOT,
                env=environment,
            )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> WarmProcess:
        """Run a script or a module in a process of its own, as Python's command line would, in this process's folder.

        Args:
            arguments: ``SCRIPT ARGUMENTS`` or ``-m MODULE ARGUMENTS``.
            environment: All of its environment.
        """
        output = tempfile.TemporaryFile()  # noqa: SIM115 - the process closes it
        with Path(os.devnull).open("rb") as nothing:
            return self.start_with(arguments, environment, (nothing, output, output), output)

    def start_with(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[BinaryIO, BinaryIO, BinaryIO],
        output: BinaryIO | None,
    ) -> WarmProcess:
        """The same, with files for what it reads, prints and complains, which stay the caller's.

        Args:
            arguments: As above.
            environment: As above.
            streams: Its standard input, output and errors.
            output: What ``communicate`` returns, and closes, if anything.
        """
        status, status_there = socket.socketpair()
        request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd())}
        with status_there:
            fds = [status_there.fileno(), *(stream.fileno() for stream in streams)]
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
        return WarmProcess(status, output)

    @property
    def door(self) -> int:
        """The file descriptor that ``testing/scripts/warm_command.py`` inherits to ask it."""
        return self._socket.fileno()

    @property
    def has_ended(self) -> bool:
        """Whether there is none any more, as on a host that was killed."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the template; what it started is not touched."""
        with contextlib.suppress(OSError):  # it was closed before
            self._socket.shutdown(socket.SHUT_RDWR)  # also where somebody has inherited it
        self._socket.close()
        code = self._process.wait(_LOAD_SECONDS)  # it may not have loaded everything yet
        assert code == 0 or self._host is not None, "a host kills what runs there when it goes, and nobody else does"


@contextlib.contextmanager
def warm_python(environment: Mapping[str, str], modules: Sequence[str] = TRAINING) -> Iterator[WarmPython]:
    """A template for as long as the block lasts."""
    template = WarmPython(environment, modules)
    try:
        yield template
    finally:
        template.close()


def lasting_python(
    modules: tuple[str, ...], variables: tuple[tuple[str, str], ...] = (), host: Host | None = None
) -> WarmPython:
    """A template for all tests of this process, which ends it; without the variables that tell Tiercel something.

    Args:
        modules: What it loads.
        variables: More of its environment, by name.
        host: Where it runs; this machine when left out.
    """
    found = _LASTING.get((modules, variables, host))
    if found is None or found.has_ended:
        no_threads = {"OPENBLAS_NUM_THREADS": "1"}  # which a fork would lack
        found = WarmPython(without_tiercels() | no_threads | dict(variables), modules, host)
        atexit.register(found.close)
        _LASTING[modules, variables, host] = found
    return found


_LASTING: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...], Host | None], WarmPython] = {}


def without_tiercels() -> dict[str, str]:
    """The environment of this process without the variables that tell Tiercel something."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TIERCEL_")}


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Answer each request by a fork, which returns what it has to become; None at the end of the template."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 1 + _STREAMS)
        if not message:
            return None
        if os.fork() == 0:
            requests.close()
            _watch(*fds)
            request: dict[str, Any] = json.loads(message)
            return request
        for fd in fds:
            os.close(fd)


def _watch(status: int, *streams: int) -> None:
    """Fork once more and return in the child, whose end is told by its parent, which does nothing else.

    The child has a session of its own: Ctrl-C in the terminal is for whoever had it started.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        os.write(status, pid.to_bytes(_NUMBER_BYTES, "little"))
        _, ended = os.waitpid(pid, 0)
        os.write(status, ended.to_bytes(_NUMBER_BYTES, "little"))
        os._exit(0)
    os.close(status)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def _become(request: dict[str, Any]) -> None:
    """Run the script; what it raises goes through to the interpreter, as it does where a script was started."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    sys.orig_argv = [sys.executable, *request["arguments"]]
    first, *rest = request["arguments"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = [first, *rest]
    sys.path[0] = str(Path(first).parent)
    runpy.run_path(first, run_name="__main__")


def main() -> None:
    """The template, and in its forks the script."""
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # else each fork would look through all of it at its end
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "what is forked must have no threads"
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = _serve(requests)
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main()
