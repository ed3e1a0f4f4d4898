"""How a container gets its secrets: by its standard input, as the engine keeps a container's environment in its files.

The container begins with a shell that makes variables of what it reads, and then becomes the program.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiodocker.containers import DockerContainer

_ENTER: Final = 'eval "$(cat)" && exec "$@" < /dev/null'
_HANDOVER_SECONDS: Final = 60.0


def command_with_secrets(command: Sequence[str]) -> list[str]:
    """A command that reads its secrets first."""
    return ["/bin/sh", "-c", _ENTER, "tiercel-run", *command]


def own_command(image: Mapping[str, Any], arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that an image runs by itself.

    Args:
        image: What the engine says of it.
        arguments: What takes the place of its arguments; none to leave them.
    """
    config = image.get("Config") or {}
    return (*(config.get("Entrypoint") or ()), *(arguments or config.get("Cmd") or ()))


def as_shell(secrets: Mapping[str, str]) -> bytes:
    """What the shell reads: the variables, quoted so that nothing in them means anything to it."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items()).encode()


async def hand_over(container: DockerContainer, secrets: Mapping[str, str]) -> None:
    """Give a container that was started what it waits for.

    Raises:
        DockerError: The engine does not do it.
        TimeoutError: It takes too long.
    """
    async with asyncio.timeout(_HANDOVER_SECONDS), container.attach(stdin=True) as stream:
        await stream.write_in(as_shell(secrets))
