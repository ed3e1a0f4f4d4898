"""Keeps the promise of an agent that has died: ends its runs in time, unless its next life looks after them.

A process of its own for each life of an agent that has a fence, started with a pipe that closes when the agent dies.
It imports as little as it can: there is one on each node, and mostly it waits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, get_args

import psutil

from tiercel.core.locks import read_pid
from tiercel.core.logs import LogFormat, configure
from tiercel.trainer_agent.fence.fence import FENCE_FILE, read_promise, since_boot
from tiercel.trainer_agent.limits.thread_scheduling import family
from tiercel.trainer_agent.runtimes.processes import minder

_log = logging.getLogger(__name__)

AGENT_LOCK: Final = "agent.lock"
"""Held by an agent, below its state directory."""

_POLL_SECONDS: Final = 0.2
_RESTART_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0
# An engine that cannot be reached is tried for this long: what it runs may still be alive.
_GIVE_UP_SECONDS: Final = 3600.0
_ENGINE_CALL_SECONDS: Final = 10.0


class Runs(Protocol):
    """Runs of one runtime that an agent left behind."""

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to all that live; whether there may be any that do."""


class Scripts:
    """Those that are processes, each with its minder, which outlives it to keep its exit code."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, number: signal.Signals) -> bool:
        """See :class:`Runs`."""
        alive = False
        for folder in self._folder.glob("[!.]*"):
            known = minder.read_processes(folder)
            if known is None or not known[1].is_alive() or _is_zombie(known[1].pid):
                continue
            alive = True
            script = known[1].pid
            # Also those that have left the script's group.
            started = family(script) if number is signal.SIGKILL else []
            with contextlib.suppress(ProcessLookupError):
                os.killpg(script, number)
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return alive


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


class Containers:
    """Those that are containers."""

    def __init__(self, host: str, instance: str) -> None:
        self._host = host
        self._instance = instance

    def send(self, number: signal.Signals) -> bool:
        """See :class:`Runs`; an engine that cannot be reached may run some."""
        try:
            return asyncio.run(self._send(number))
        except Exception as error:  # whatever the engine says, it is asked again
            _log.warning("the engine does not end what the agent left behind: %s", error)
            return True

    async def _send(self, number: signal.Signals) -> bool:
        # Only here: it takes megabytes, and mostly nobody dies.
        from aiodocker import Docker

        from tiercel.trainer_agent.runtimes.containers.config import LABEL_INSTANCE

        wanted = {"label": [f"{LABEL_INSTANCE}={self._instance}"], "status": ["running"]}
        async with asyncio.timeout(_ENGINE_CALL_SECONDS), Docker(url=self._host) as engine:
            containers = await engine.containers.list(filters=json.dumps(wanted))
            for container in containers:
                await container.kill(signal=number.name)
        return bool(containers)


def keep(
    state_dir: Path,
    agent_pid: int,
    runs: Iterable[Runs],
    *,
    clock: Callable[[], float] = since_boot,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """End what a dead agent has left, when its promise says so; returns when there is nothing to do any more."""
    asked = False
    while _nobody_else_looks_after(state_dir, agent_pid):
        promise = read_promise(state_dir / FENCE_FILE, clock())
        if promise is None:
            return
        silence = clock() - promise.contact_at
        if silence >= promise.end_after:
            alive = [each for each in runs if each.send(signal.SIGKILL)]
            if not alive or silence >= promise.end_after + _GIVE_UP_SECONDS:
                return
            sleep(_AGAIN_SECONDS)
        elif silence >= promise.stop_after and not asked:
            _log.warning("the agent is dead and its runs may go on elsewhere: ending them")
            for each in runs:
                each.send(signal.SIGTERM)
            asked = True
        else:
            sleep(_POLL_SECONDS)


def _nobody_else_looks_after(state_dir: Path, agent_pid: int) -> bool:
    """Whether the last agent of the state directory is the one that died; each life writes its pid into its lock."""
    return read_pid(state_dir / AGENT_LOCK) == agent_pid


class Starter:
    """The agent's side: has one wait for the death of this process.

    Args:
        state_dir: The agent's.
        engine: Where the container engine listens, and what the agent's containers are labelled with; None without.
        log_format: How lines of the log are written.
    """

    def __init__(self, state_dir: Path, engine: tuple[str, str] | None, log_format: LogFormat = "text") -> None:
        options = ["--state-dir", str(state_dir), "--agent-pid", str(os.getpid()), "--log-format", log_format]
        if engine is not None:
            options += ["--docker-host", engine[0], "--instance", engine[1]]
        self._command = [sys.executable, "-P", "-m", __name__, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -math.inf

    def ensure(self) -> None:
        """Start it, also where it has died."""
        if self._process is not None and self._process.poll() is None:
            return
        if time.monotonic() - self._started_at < _RESTART_SECONDS:
            return
        self._started_at = time.monotonic()
        self.stop()
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            _log.error("nobody would end the runs of this node if its agent died: %s", error)

    def stop(self) -> None:
        """End it, since the agent leaves in order."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for the agent's death, then keep its promise."""
    parser = argparse.ArgumentParser(prog="tiercel-fence-keeper", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--agent-pid", type=int, required=True)
    parser.add_argument("--docker-host", default="")
    parser.add_argument("--instance", default="")
    parser.add_argument("--log-format", choices=get_args(LogFormat), default="text")
    given = parser.parse_args(arguments)
    configure(given.log_format)
    runs: list[Runs] = [Scripts(given.state_dir / "minders")]
    if given.docker_host:
        runs.append(Containers(given.docker_host, given.instance))
    sys.stdin.buffer.read()  # until the agent is gone
    keep(given.state_dir, given.agent_pid, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
