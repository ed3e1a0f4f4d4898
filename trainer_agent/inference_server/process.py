"""The inference server as a process: starting it, finding one that lives already, and ending it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.addresses import port_in
from tiercel.core.locks import is_held, read_pid
from tiercel.trainer_agent.limits.entering import entering

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.05
_LOG_BYTES: Final = 16 * 1024**2
_TOKEN_BYTES: Final = 32


Ports = tuple[int, int, int, int]
"""Of REST, of gRPC, and of both for other machines; 0 for any free one."""


@dataclass(frozen=True, slots=True)
class ServingPlaces:
    """Files of the inference server below the agent's state directory."""

    state_dir: Path  # the agent's state directory

    @property
    def repository(self) -> Path:
        """The models."""
        return self.state_dir / "models"

    @property
    def lock_file(self) -> Path:
        """Held by the server while it lives."""
        return self.state_dir / "serving.lock"

    @property
    def state_file(self) -> Path:
        """Its pid and addresses, written by itself."""
        return self.state_dir / "serving.json"

    @property
    def routes_file(self) -> Path:
        """Who answers for which endpoint, written by the agent for the server; only for the agent's user."""
        return self.state_dir / "routes.json"

    @property
    def access_file(self) -> Path:
        """Who may ask what, written by the agent for the server; only for the agent's user."""
        return self.state_dir / "access.json"

    @property
    def token_file(self) -> Path:
        """What whoever operates the server has to send; only for the agent's user."""
        return self.state_dir / "serving.token"

    def read_token(self) -> str:
        """The operators' token, or empty while there is none."""
        try:
            return self.token_file.read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    @property
    def log_file(self) -> Path:
        """Its output."""
        return self.state_dir / "serving.log"


@dataclass(frozen=True, slots=True)
class ServingState:
    """What the server says of itself."""

    pid: int  # its process
    http: str  # where REST answers, ``host:port``
    grpc: str  # where gRPC answers, ``host:port``
    https: str = ""  # where REST answers other machines, or empty
    grpcs: str = ""  # where gRPC does

    @property
    def ports(self) -> Ports:
        """Where it listens, for one that is started in its place."""
        http, grpc, https, grpcs = (port_in(each) for each in (self.http, self.grpc, self.https, self.grpcs))
        return http, grpc, https, grpcs


def find_living(places: ServingPlaces) -> ServingState | None:
    """What a living server says of itself; None while none lives or it does not listen yet."""
    return _read_state(places) if is_held(places.lock_file) else None


def state_of(places: ServingPlaces, pid: int) -> ServingState | None:
    """What the server with this pid says of itself; None while it does not listen yet.

    Does not look at the lock, which would for a moment take it away from a server that is just starting.
    """
    state = _read_state(places)
    return state if state is not None and state.pid == pid else None


async def start(
    places: ServingPlaces, ports: Ports, environment: Mapping[str, str], entry: Sequence[Path] = ()
) -> asyncio.subprocess.Process:
    """Start a server in a session of its own, so that it outlives the agent.

    Args:
        places: Its files.
        ports: Where it is to listen.
        environment: Variables that it gets beside the agent's own.
        entry: Files that it writes its pid to before anything else.

    Raises:
        OSError: It cannot be started.
    """
    places.repository.mkdir(parents=True, exist_ok=True)
    _rotate(places.log_file)
    command = [sys.executable, "-P", "-m", "tiercel.serving", "--repository", str(places.repository)]
    flags = ("--http-port", "--grpc-port", "--tls-http-port", "--tls-grpc-port")
    command += ["--host", "127.0.0.1", *(word for pair in zip(flags, map(str, ports), strict=True) for word in pair)]
    ensure_token(places.token_file)
    command += ["--operator-token-file", str(places.token_file)]
    command += ["--routes-file", str(places.routes_file)]
    command += ["--access-file", str(places.access_file)]
    command += ["--state-file", str(places.state_file), "--lock-file", str(places.lock_file)]
    with places.log_file.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *entering(entry, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | environment,
            start_new_session=True,
        )


async def end(places: ServingPlaces, grace_seconds: float) -> None:
    """Ask the server that lives to leave, and end it if it does not; returns when its lock is free.

    Its lock says who it is, also before it listens.
    """
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        if not is_held(places.lock_file):
            return
        if pid := read_pid(places.lock_file):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await wait_gone(places)
    if is_held(places.lock_file):
        _log.error("the inference server with pid %d cannot be ended", read_pid(places.lock_file))


async def end_child(child: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """The same for a server that we started, whether it has its lock already or not."""
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await child.wait()


async def wait_gone(places: ServingPlaces) -> None:
    """Wait until no server lives."""
    while is_held(places.lock_file):  # noqa: ASYNC110 - a lock of another process tells nobody that it is free
        await asyncio.sleep(_POLL_SECONDS)


def _read_state(places: ServingPlaces) -> ServingState | None:
    try:
        content = json.loads(places.state_file.read_bytes())
        encrypted = (str(content.get(name, "")) for name in ("https", "grpcs"))
        return ServingState(int(content["pid"]), str(content["http"]), str(content["grpc"]), *encrypted)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("%s cannot be read: %s", places.state_file, error)
        return None


def ensure_token(path: Path) -> None:
    """Keep the token that is there, for a server may live that knows it; make one if none is fit."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077 and status.st_size > _TOKEN_BYTES:
            return
    temporary = path.with_suffix(".token.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    temporary.replace(path)


def _rotate(log_file: Path) -> None:
    """Keep one older log once this one has grown."""
    with contextlib.suppress(FileNotFoundError):
        if log_file.stat().st_size > _LOG_BYTES:
            log_file.replace(log_file.with_suffix(".log.1"))
