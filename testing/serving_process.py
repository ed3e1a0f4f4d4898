"""A real inference server in its own process, for tests, and a small HTTP client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from testing.warm_python import WarmProcess, lasting_python
from tiercel.serving.memory import environment_with_huge_pages

DEADLINE = 60.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error."""
        return str(self.content["error"])


@dataclass(frozen=True, slots=True)
class ServingProcess:
    """A running server."""

    process: WarmProcess
    repository: Path
    http: str
    grpc: str
    log: Path

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One HTTP request on a connection of its own; a body that is not bytes goes as JSON."""
        connection = http.client.HTTPConnection(self.http, timeout=DEADLINE)
        with contextlib.closing(connection):
            data = body if isinstance(body, bytes) or body is None else json.dumps(body)
            connection.request(method, path, data, dict(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def index(self) -> dict[tuple[str, str], tuple[str, str]]:
        """State and reason by model and version."""
        lines = self.request("POST", "/v2/repository/index").content
        return {(line["name"], line["version"]): (line["state"], line["reason"]) for line in lines}

    def load(self, model: str) -> Reply:
        """Ask for the newest version."""
        return self.request("POST", f"/v2/repository/models/{model}/load")

    def live_version(self, model: str) -> str:
        """The version that answers."""
        return str(self.request("GET", f"/v2/models/{model}").content["versions"][0])

    def verifier(self) -> psutil.Process:
        """The verifier's process."""
        return wait_for(
            lambda: next(
                (
                    child
                    for child in psutil.Process(self.process.pid).children()
                    if "tiercel.serving.verification.verifier_process" in child.cmdline()
                ),
                None,
            ),
            "the verifier",
        )


def wait_for(condition: Callable[[], T | None], what: str, timeout: float = DEADLINE) -> T:
    """What ``condition`` returns as soon as that is true; fails after ``timeout`` seconds."""
    give_up = time.monotonic() + timeout
    while time.monotonic() < give_up:
        if result := condition():
            return result
        time.sleep(0.02)  # most look at a process or ask a server; what is waited for is another process's
    raise AssertionError(f"waited {timeout:g} s in vain for {what}")


def command(repository: Path, directory: Path, *more: str) -> list[str]:
    """The server's command line."""
    flags = {
        "repository": repository,
        "state-file": directory / "serving.json",
        "lock-file": directory / "serving.lock",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "tiercel.serving", *words, "--http-port", "0", "--grpc-port", "0", *more]


def begun(words: list[str], log: Path, environment: dict[str, str] | None = None) -> WarmProcess:
    """A server by its command line, with what it always imports there when it begins; what it says is in its log."""
    pages = environment_with_huge_pages()  # else it would begin anew, to have them
    template = lasting_python(("tiercel.serving.server",), tuple(pages.items()))
    with Path(os.devnull).open("r+b") as nothing, log.open("ab") as output:
        return template.start_with(
            words[1:], os.environ | pages | (environment or {}), (nothing, nothing, output), None
        )


def _addresses(process: WarmProcess, state: Path, log: Path) -> dict[str, Any] | None:
    assert process.poll() is None, log.read_text()
    try:
        addresses: dict[str, Any] = json.loads(state.read_text())
    except FileNotFoundError:
        return None
    return addresses if addresses["pid"] == process.pid else None  # else it is the last server's


@contextlib.contextmanager
def serving(
    repository: Path, directory: Path, settings: Mapping[str, object] | None = None
) -> Iterator[ServingProcess]:
    """Run a server until the context ends; ready when it begins. What it always imports is there when it begins.

    Args:
        repository: The models.
        directory: For its files.
        settings: Further settings by name, given in the environment.
    """
    environment = {f"TIERCEL_SERVING_{name.upper()}": str(value) for name, value in (settings or {}).items()}
    log = directory / "serving.log"
    state = directory / "serving.json"
    process = begun(command(repository, directory), log, environment)
    try:
        addresses = wait_for(lambda: _addresses(process, state, log), str(state))
        server = ServingProcess(process, repository, addresses["http"], addresses["grpc"], log)
        wait_for(lambda: server.request("GET", "/v2/health/ready").status == 200, "ready")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
