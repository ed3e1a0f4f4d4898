"""A container that has imported what runs import, and waits: the agent's side of one, until it is a run.

The agent holds its standard input, so that it ends when the agent does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer
from aiodocker.stream import Stream

from tiercel.trainer_agent.errors import WarmStartError
from tiercel.trainer_agent.runtimes.containers import mounting
from tiercel.trainer_agent.runtimes.containers.engine_calls import EngineError, remove, update
from tiercel.trainer_agent.runtimes.containers.waiting import LENGTH_BYTES, NO_LIBRARY, digest
from tiercel.trainer_agent.runtimes.warm.script import COLD, ENTERED, WarmOrder

_MOST_BYTES: Final = 1 << 18
_LONGEST_REASON: Final = 200
_MOUNT_SECONDS: Final = 10.0
_ENDED: Final = "its waiting container has ended"


class WaitingContainer:
    """One container. Made by :meth:`start`.

    Attributes:
        container: The container.
        taken: Set once it is to be a run.
        left_out: Modules that it has not imported, each with the reason.
    """

    def __init__(self, docker: Docker, container: DockerContainer, stream: Stream) -> None:
        self.container = container
        self.taken = asyncio.Event()
        self.left_out: dict[str, str] = {}
        self._docker = docker
        self._stream = stream
        self._pid = 0
        self._said = b""

    @classmethod
    async def start(cls, docker: Docker, config: Mapping[str, Any]) -> Self:
        """Create and start one.

        Raises:
            DockerError: The engine does not do it.
        """
        container = await docker.containers.create(dict(config))
        found = cls(docker, container, container.attach(stdin=True, stdout=True))
        try:
            await found._stream.__aenter__()  # before it says anything
            await container.start()
            found._pid = int((await container.show())["State"]["Pid"])
        except BaseException:
            await found.remove()
            raise
        return found

    async def imported(self) -> None:
        """Wait until it has imported what it should, but for what it leaves out, and could be given a run's folders.

        Raises:
            WarmStartError: It never will; says why.
        """
        while True:
            line = await self._line()
            if line == NO_LIBRARY.encode():
                raise WarmStartError("its image has no Tiercel of this version", is_templates_fault=False)
            try:
                said = json.loads(line)
                self.left_out.update(said["left_out"])
                ready = said.get("ready", "")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                # packages of a tenant are in it, and one of them speaks for it
                raise WarmStartError(
                    "it ended before it had imported what it should", is_templates_fault=True
                ) from None
            if ready == digest():
                return await self._bring(())
            if ready:
                raise WarmStartError("its image has another version of Tiercel", is_templates_fault=False)

    async def become(
        self, name: str, order: WarmOrder, limits: Mapping[str, int], mounts: Sequence[Mapping[str, Any]]
    ) -> None:
        """Have it be a run; what it begins with is in force and in place before.

        Raises:
            WarmStartError: It has not become the run, and will not once it is removed.
            DockerError: The same; the engine is to blame.
        """
        try:
            await update(self._docker, self.container.id, limits)
        except DockerError as error:
            if await self._is_running():
                raise
            raise WarmStartError(_ENDED, is_templates_fault=True) from error
        await self.container.rename(name)
        await self._bring(mounts)
        stored = order.to_bytes()
        try:
            await self._write(b"%0*x" % (LENGTH_BYTES, len(stored)) + stored)
            answer = await self._line()
        finally:
            await self._let_go()
        if answer == ENTERED.strip():
            return
        of_run = answer.startswith(COLD)
        why = answer.removeprefix(COLD)[:_LONGEST_REASON].decode(errors="replace").strip()
        raise WarmStartError(why or _ENDED, is_templates_fault=not of_run)

    async def remove(self) -> None:
        """End it and have it gone.

        Raises:
            DockerError: The engine does not remove it.
        """
        await self._let_go()
        await remove(self.container)

    async def _line(self) -> bytes:
        """The next line that it says; empty where it says no more."""
        while b"\n" not in self._said:
            try:
                message = await self._stream.read_out()
            except (*EngineError, AssertionError):  # which is how aiodocker says that the engine hung up
                return b""
            if message is None or len(self._said) > _MOST_BYTES:
                return b""
            self._said += message.data
        line, _, self._said = self._said.partition(b"\n")
        return line

    async def _write(self, order: bytes) -> None:
        with contextlib.suppress(*EngineError, AssertionError, RuntimeError):  # the same; it does not answer then
            await self._stream.write_in(order)

    async def _let_go(self) -> None:
        with contextlib.suppress(*EngineError, AssertionError):
            await self._stream.close()

    async def _is_running(self) -> bool:
        return bool((await self.container.show())["State"]["Running"])

    async def _bring(self, mounts: Sequence[Mapping[str, Any]]) -> None:
        order = {"pid": self._pid, "container": self.container.id, "mounts": list(mounts)}
        said = await asyncio.to_thread(_mount, json.dumps(order).encode())
        if said:
            raise WarmStartError(said, is_templates_fault=True)


def _mount(order: bytes) -> str:
    """What went wrong; empty for nothing. Needs none of this process's environment, and gives none."""
    command = [sys.executable, "-I", "-S", str(Path(mounting.__file__))]
    try:
        done = subprocess.run(command, input=order, capture_output=True, check=False, timeout=_MOUNT_SECONDS, env={})
    except subprocess.TimeoutExpired:
        return "it took too long to bring the job's folder into its container"
    match done.returncode:
        case 0:
            return ""
        case mounting.GONE:
            return _ENDED
    why = done.stderr.decode(errors="replace").strip()[:_LONGEST_REASON] or f"exit code {done.returncode}"
    return f"the job's folder could not be brought into its container: {why}"
