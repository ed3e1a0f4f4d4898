"""A terminal of a certain size, by tmux: what a person sees of a command there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DEADLINE_SECONDS = 60.0
"""Generous: it only decides how long a broken test takes."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal with one command in it."""

    server: str

    def text(self) -> str:
        """What it shows now."""
        return self._tmux("capture-pane", "-p").rstrip()

    def lines(self) -> list[str]:
        """The lines that its command printed and are still to be seen, however many rows each takes."""
        return [line.rstrip() for line in self._tmux("capture-pane", "-p", "-J").splitlines()]

    def wait(self, text: str) -> str:
        """What it shows once a text is in it."""
        until = time.monotonic() + _DEADLINE_SECONDS
        while text not in (shown := self.text()):
            assert time.monotonic() < until, shown
            time.sleep(0.05)
        return shown

    def press(self, key: str) -> None:
        """Press a key, by tmux' name of it."""
        self._tmux("send-keys", key)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self.server, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DEADLINE_SECONDS).stdout


@contextlib.contextmanager
def terminal(width: int, height: int, command: list[str], environment: Mapping[str, str]) -> Iterator[Terminal]:
    """A terminal that stays when the command has ended, with a line ``END`` and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        server = f"{folder}/tmux"
        shell = ["sh", "-c", '"$@"; echo "END $?"; exec sleep 600', "sh", *command]
        start = [
            "tmux",
            "-f",
            "/dev/null",
            "-S",
            server,
            "-u",
            "new-session",
            "-d",
            "-x",
            str(width),
            "-y",
            str(height),
        ]
        # Other tests' COLUMNS and LINES would be believed rather than the terminal.
        ours = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        known = {**ours, **environment, "LC_ALL": "C.UTF-8"}
        subprocess.run([*start, *shell], check=True, timeout=_DEADLINE_SECONDS, env=known)
        try:
            yield Terminal(server)
        finally:
            subprocess.run(["tmux", "-S", server, "kill-server"], check=False, timeout=_DEADLINE_SECONDS)
