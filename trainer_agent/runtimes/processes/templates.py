"""The templates of a node: which there are, what they import, and when runs are forked from them.

The agent's side of :mod:`.template`. A template is started when a second run of its
tenant and interpreter is ordered, once an earlier one has written down what it imported: a node with one job pays
nothing. It is looked after whenever a run is ordered, so that there is no task for it; it ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.errors import WarmStartError
from tiercel.trainer_agent.limits.contract import Limits, RunLimits
from tiercel.trainer_agent.limits.entering import entering
from tiercel.trainer_agent.runtimes.processes import template
from tiercel.trainer_agent.runtimes.processes.minding import in_memory
from tiercel.trainer_agent.runtimes.warm.history import WarmHistory
from tiercel.trainer_agent.runtimes.warm.import_records import Key

_log = logging.getLogger(__name__)

_MOST_FORKS: Final = 1000
# More tenants in turn than there may be templates would else end one another's, and pay for each import again.
_IN_USE_SECONDS: Final = 60.0
_MOST_MESSAGE_BYTES: Final = 1 << 18
_MOST_MESSAGES: Final = 16
_END_SECONDS: Final = 5.0
_MEMORY_BYTES_EACH: Final = 2 * 1024**3

# What every run has besides, whoever owns it, so that no fork tells anything by it. HOME: no folder can be made there.
_CONSTANT: Final = {
    "HOME": os.devnull,
    "LANG": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """What an operator says about templates, and about containers that wait."""

    # How many there are of each at a time; the one that was used least recently makes room. 0: no warm starts.
    most: int = 2
    idle_seconds: float = 600.0  # how long one waits for an order


class Template:
    """One template."""

    def __init__(self, process: subprocess.Popen[bytes], orders: socket.socket) -> None:
        self._process = process
        self._orders = orders
        self.pid = process.pid
        self.used_at = time.monotonic()
        self.is_ready = False
        self.left_out: dict[str, str] = {}

    def look(self) -> bool:
        """Read what it says; whether it may live still."""
        for _ in range(_MOST_MESSAGES):
            try:
                message = self._orders.recv(_MOST_MESSAGE_BYTES)
            except BlockingIOError:
                return self._process.poll() is None
            except OSError:
                return False
            if not message:
                return False
            try:
                said = json.loads(message)
                self.left_out.update(said["left_out"])
                self.is_ready = self.is_ready or bool(said.get("ready"))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return False  # packages of a tenant are in it, and one of them speaks for it
        return False  # the same: it has no more to say than what it leaves out

    def send(self, descriptors: Sequence[int]) -> None:
        """Order a fork.

        Raises:
            OSError: It is gone, or has more to do than it can take.
        """
        socket.send_fds(self._orders, [b"!"], descriptors)

    def end(self) -> None:
        """End it; what was forked from it goes on. Blocks for a moment. Doing it twice is harmless."""
        self._orders.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)


class Templates:
    """All templates of a node."""

    def __init__(self, folder: Path, limits: Limits, settings: TemplateSettings | None = None) -> None:
        self._history = WarmHistory(folder)
        self._limits = limits
        self._settings = settings or TemplateSettings()
        self._templates: dict[Key, Template] = {}
        self._confines: RunLimits | None = None
        self._starting = asyncio.Lock()

    async def claim(self, key: Key, job_folder: Path, inherited: Mapping[str, str]) -> Template | None:
        """The template to fork a run from now; None where it is to be started cold, as there is none yet.

        Args:
            key: Whose run it is.
            job_folder: Of the run, which writes down there what it imports.
            inherited: Variables of the agent that every run has.
        """
        self._look()
        self._history.note_order(key, job_folder)
        async with self._starting:  # several may be ordered at once
            found = self._templates.get(key)
            if found is None:
                await self._start(key, inherited)
                return None
        found.used_at = time.monotonic()
        return found if found.is_ready else None

    def note_fork(self, key: Key) -> None:
        """A run was forked from the template of a key."""
        self._history.note_start(key)

    async def note_failure(self, key: Key, error: WarmStartError) -> None:
        """No run came of an order; where the template is to blame, it has had its time."""
        if error.is_templates_fault:
            self._history.note_failure(key)
            if (found := self._templates.pop(key, None)) is not None:
                await asyncio.to_thread(found.end)

    def ready(self) -> dict[Key, int]:
        """The processes that runs can be forked from now, as this machine numbers them."""
        self._look()
        return {key: each.pid for key, each in self._templates.items() if each.is_ready}

    async def close(self) -> None:
        """End them all; what was forked from them goes on."""
        for each in self._templates.values():
            await asyncio.to_thread(each.end)
        self._templates.clear()
        if self._confines is not None:
            await asyncio.to_thread(self._confines.close)
            self._confines = None

    def _look(self) -> None:
        """Learn what templates say, and forget those that have ended."""
        for key, each in list(self._templates.items()):
            lives = each.look()
            if each.left_out:
                self._history.note_left_out(key, each.left_out)
                each.left_out = {}
            if not lives:
                del self._templates[key]
                if not each.is_ready:  # it did not even bear its imports
                    self._history.note_failure(key)
                each.end()

    async def _start(self, key: Key, inherited: Mapping[str, str]) -> None:
        """Start a template in the background, if that is worth it."""
        names = self._history.to_import(key)
        if not names or not await self._make_room():
            return
        try:
            if self._confines is None:
                self._confines = self._limits.open_templates(_MEMORY_BYTES_EACH * self._settings.most)
            self._templates[key] = await asyncio.to_thread(self._spawn, key, names, inherited)
        except OSError as error:
            _log.warning("no template can be started for %s: %s", key.tenant, error)
            self._history.note_failure(key)

    async def _make_room(self) -> bool:
        """End the template that was used least recently, if need be; whether there is room now."""
        if len(self._templates) < self._settings.most:
            return True
        oldest = min(self._templates, key=lambda each: self._templates[each].used_at)
        if time.monotonic() - self._templates[oldest].used_at < _IN_USE_SECONDS:
            return False
        await asyncio.to_thread(self._templates.pop(oldest).end)
        return True

    def _spawn(self, key: Key, names: Sequence[str], inherited: Mapping[str, str]) -> Template:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = in_memory(json.dumps(names).encode())
        program = [key.python, "-c", template.START, str(its.fileno())]
        files = self._confines.entry_files if self._confines is not None else ()
        try:
            process = subprocess.Popen(
                entering(files, [*program, str(self._settings.idle_seconds), str(_MOST_FORKS)]),
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**inherited, **_CONSTANT},
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
            os.close(given)
        ours.setblocking(False)
        _log.info("process %d becomes the template of %s, of %d modules", process.pid, key.tenant, len(names))
        return Template(process, ours)
