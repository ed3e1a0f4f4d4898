"""Where the broker listens, and the token that the node shows it: both read again before every dial."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from tiercel.trainer_agent.errors import AgentError

_log = logging.getLogger(__name__)


class DialError(AgentError):
    """The broker cannot be dialled now; says why."""


class LocalBroker:
    """A broker that says in a file where it listens: ``{"nodes": "host:port", "broker_pid": "17"}``.

    Args:
        path: The file; read again before every dial.
        protect: Moves a process, by its pid, to where training cannot starve it. A starved broker decides late.
    """

    def __init__(self, path: Path, protect: Callable[[int], None]) -> None:
        self._path = path
        self._protect = protect
        self._protected = 0

    def address(self) -> str:
        """Where it listens for agents.

        Raises:
            DialError: The file does not say.
        """
        try:
            content = json.loads(self._path.read_bytes())
            address, pid = str(content["nodes"]), int(content.get("broker_pid", 0))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DialError(f"The file {self._path} does not say where the broker is ({error}).") from error
        if pid > 0 and pid != self._protected:
            self._protected = pid
            try:
                self._protect(pid)
            except OSError as error:
                _log.warning("the broker, process %d, is not protected from being starved: %s", pid, error)
        return address


def token_from_file(path: Path) -> str:
    """The first line of a file.

    Raises:
        DialError: There is none.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise DialError(f"The node's token cannot be read: {error}.") from error
    if not lines or not lines[0].strip():
        raise DialError(f"The node's token is missing: {path} has no first line.")
    return lines[0].strip()
