"""A HAProxy that runs, and its program: what is asked of them, each with a deadline."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING, Final

from tiercel.broker.cli.proxy.configuration import MASTER_SOCKET, STATS_SOCKET
from tiercel.core.errors import InvalidSpecError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_CHECK_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 5.0
_RELOAD_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_ANSWER_BYTES: Final = 1024 * 1024
_SHOWN_CHARACTERS: Final = 600
# A line longer than HAProxy's buffer is refused.
_COMMANDS_AT_ONCE: Final = 50


class Haproxy:
    """HAProxy as it is started with the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._stats = folder / STATS_SOCKET
        self._master = folder / MASTER_SOCKET

    def start_command(self, file: Path) -> str:
        """How it is started, so that it can be told of changes."""
        return f"haproxy -W -S {self._master} -f {file}"

    async def check(self, file: Path) -> None:
        """Have its program read a file.

        Raises:
            UnavailableError: There is no such program.
            InvalidSpecError: It refuses the file.
        """
        program = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/sbin") or shutil.which("haproxy")
        if program is None:
            raise UnavailableError("HAProxy is not installed here, and a file is checked by it; install 'haproxy'")
        process = await asyncio.create_subprocess_exec(
            program, "-c", "-f", str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            raise UnavailableError(f"'haproxy -c' took longer than {_CHECK_SECONDS:g} s; try again") from None
        finally:
            if process.returncode is None:  # too slow, or nobody waits for it any more
                process.kill()
                await process.wait()
        if process.returncode != 0:
            # Without the number of the process, so that the same is told once.
            words = re.sub(r"\[\w+\] +\(\d+\) : ", "", said.decode(errors="replace")).strip()[-_SHOWN_CHARACTERS:]
            raise InvalidSpecError(f"HAProxy refuses {file}: {words}", field="proxy")

    async def is_running(self) -> bool:
        """Whether one answers."""
        try:
            return bool(await self._ask(self._stats, "show info"))
        except OSError:
            return False

    async def set_weights(self, weights: Mapping[tuple[str, str], int]) -> bool:
        """Change the weights of servers while it runs; whether it took all of them."""
        commands = [f"set server {backend}/{server} weight {weight}" for (backend, server), weight in weights.items()]
        try:
            for begin in range(0, len(commands), _COMMANDS_AT_ONCE):
                if (await self._ask(self._stats, ";".join(commands[begin : begin + _COMMANDS_AT_ONCE]))).strip():
                    return False
        except OSError:
            return False
        return True

    async def reload(self, backends: Iterable[str]) -> None:
        """Have it read its file again; requests under way are finished by the process of before.

        Args:
            backends: What it must know afterwards.

        Raises:
            UnavailableError: It does not.
        """
        wanted = set(backends)
        try:
            await self._ask(self._master, "reload")
            async with asyncio.timeout(_RELOAD_SECONDS):
                while True:
                    if wanted <= await self._backends():
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except (OSError, TimeoutError) as error:
            raise UnavailableError(
                f"HAProxy did not take its new file ({str(error) or 'it took too long'}); start it with -W and "
                f"-S {self._master}, and see its log."
            ) from error

    async def _backends(self) -> set[str]:
        try:
            return set((await self._ask(self._stats, "show backend")).split())
        except OSError:  # between the process of before and the next
            return set()

    async def _ask(self, socket: Path, command: str) -> str:
        """What is answered at a socket; raises OSError where nobody does, or not in time."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(f"{command}\n".encode())
                said = b""
                while len(said) < _ANSWER_BYTES and (more := await reader.read(_ANSWER_BYTES)):
                    said += more
                return said.decode(errors="replace")
            finally:
                writer.close()
