"""The environments of a node: each built once, used by many, and removed when there are too many of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tiercel.core.locks import Lock, LockHeldError, take
from tiercel.trainer_agent.disk.files import write_atomically
from tiercel.trainer_agent.environments import folders
from tiercel.trainer_agent.environments.building import COMPLETE, Build, BuildFailedError, build, python_of, size_of
from tiercel.trainer_agent.environments.commands import CommandLimits
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.environments.installers import find_installer
from tiercel.trainer_agent.environments.layers import Layer
from tiercel.trainer_agent.environments.node_layer import NodeLayer
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.contract import CpuShare, Limits, RunLimits
from tiercel.trainer_agent.supervision import Supervisor

_log = logging.getLogger(__name__)

# Counts how environments are built: those of another count are built anew.
_BUILDER: Final = 2
_FAILURES_KEPT: Final = 100
_LINES_KEPT: Final = 1000
_AT_ONCE: Final = 2
_LOCK_SECONDS: Final = 0.2
_CORES: Final = 1.0
_WEIGHT: Final = 0.05
_FAILURES: Final = "failed"


@dataclass(frozen=True, slots=True)
class EnvironmentLimits:
    """What environments may take."""

    size_bytes: int = 20 * 1024**3  # all of them together on the disk, and each alone
    reserve_bytes: int = 512 * 1024**2  # what the disk has to have left while one is built
    build_seconds: float = 600.0  # how long one may take to be built
    memory_bytes: int = 4 * 1024**3  # what a build may have in memory


@dataclass(slots=True)
class _Building:
    """A build that is under way, with whoever waits for it."""

    task: asyncio.Task[None] | None = None
    error: RunFailedError | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[str] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Tell all who wait, and those who come later."""
        if len(self.lines) < _LINES_KEPT:
            self.lines.append(line)
        for listener in self.listeners:
            listener(line)


class Environments:
    """Owns the environments of a node.

    Args:
        confines: Of the node: builds are confined like runs, and give way to them.
        is_live: Whether a run lives, by its id: what it uses stays.
    """

    def __init__(
        self,
        folder: Path,
        index: PackageIndex,
        limits: EnvironmentLimits,
        confines: Limits,
        tasks: Supervisor,
        is_live: Callable[[str], bool],
    ) -> None:
        self._folder = folder
        self._index = index
        self._limits = limits
        self._confines = confines
        self._tasks = tasks
        self._is_live = is_live
        self._building: dict[str, _Building] = {}
        self._taking = threading.Lock()
        self._layer: NodeLayer | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def ready(
        self, run_id: str, requirements: Sequence[str], say: Callable[[str], None], image: Layer | None = None
    ) -> str:
        """The interpreter of an environment that has what a run asks for; built if there is none.

        Args:
            run_id: The run; the environment stays for as long as it lives.
            requirements: What it asks for.
            say: Given each line that the build writes.
            image: What the image of its container has, or None for a run that is a process of the node.

        Raises:
            RunFailedError: It cannot be built; says why.
        """
        try:
            wanted = await asyncio.to_thread(self._wanted, requirements, image)
            while not await asyncio.to_thread(self._take, wanted.folder, run_id):
                await self._wait_built(wanted, say)
        except OSError as error:
            raise RunFailedError(f"Its environment cannot be made: {error}.") from error
        return str(wanted.python)

    def clear(self) -> None:
        """Remove what an earlier life of the agent left unfinished, as far as it can be removed."""
        try:
            self._remove_unfinished()
        except OSError as error:
            _log.error("an environment that was not finished cannot be removed: %s", error)

    def _remove_unfinished(self) -> None:
        for folder in self._folder.glob("*"):
            if folder.is_dir() and folder.name != _FAILURES and not _is_complete(folder):
                lock = _taken(self._lock_of(folder))
                if lock is not None:
                    with lock:
                        folders.remove(folder)

    def _wanted(self, requirements: Sequence[str], image: Layer | None) -> Build:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        installer = find_installer()
        if installer is None:
            raise RunFailedError(
                "This node cannot build environments: it has neither uv nor pip. Install tiercel[envs] there."
            )
        if image is None:
            layer: Layer = self._node_layer()
        elif reason := installer.cannot(image.platform):
            raise RunFailedError(f"Its environment cannot be built for its image: {reason}.")
        else:
            layer = image
        # What has to be built would be built for the Python here.
        index = self._index if image is None else replace(self._index, sdists=False)
        content = [
            _BUILDER,
            sorted(set(requirements)),
            "node" if image is None else "image",
            *layer.identity(),
            index.identity(),
            installer.identity,
        ]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
        return Build(self._folder / key, tuple(requirements), layer, index, installer)

    def _node_layer(self) -> NodeLayer:
        self._layer = NodeLayer.read(self._layer)
        return self._layer

    async def _wait_built(self, wanted: Build, say: Callable[[str], None]) -> None:
        failure = self._failure_of(wanted.folder)
        if failure.exists():
            raise RunFailedError(
                f"Its environment cannot be built, as was found before: {failure.read_text()}. It is tried again once "
                "its requirements, its image, or where the node has packages from, are different."
            )
        building = self._building.get(wanted.folder.name)
        if building is None:
            building = self._building[wanted.folder.name] = _Building()
            building.task = self._tasks.start(f"environment {wanted.folder.name}", self._build(wanted, building))
        for line in building.lines:
            say(line)
        building.listeners.append(say)
        try:
            await building.done.wait()
        finally:
            building.listeners.remove(say)
            if not building.listeners and not building.done.is_set() and building.task is not None:
                self._building.pop(wanted.folder.name, None)
                building.task.cancel()  # nobody waits for it any more
        if building.error is not None:
            raise RunFailedError(building.error.message)

    async def _build(self, wanted: Build, building: _Building) -> None:
        try:
            async with self._room:
                ends_at = asyncio.get_running_loop().time() + self._limits.build_seconds
                building.say(f"environment: {wanted.installer.identity} builds it from the requirements of its jobs")
                with await self._lock(wanted.folder, ends_at) as lock:
                    await self._build_confined(wanted, building, ends_at, lock.descriptor)
                building.say("environment: ready")
            await self._make_room(wanted.folder)
        except BuildFailedError as error:
            building.error = RunFailedError(f"Its environment cannot be built: {error.message.rstrip('.')}.")
            if error.for_good:
                await asyncio.to_thread(self._remember_failure, wanted.folder, error.message.rstrip("."))
        except OSError as error:
            building.error = RunFailedError(f"Its environment cannot be built: {error}.")
        except Exception as error:
            # A defect in here must not take the agent along.
            _log.exception("environment %s was given up", wanted.folder.name)
            building.error = RunFailedError(f"Its environment cannot be built ({error!r}), a defect of Tiercel.")
        finally:
            building.done.set()
            if self._building.get(wanted.folder.name) is building:
                del self._building[wanted.folder.name]

    async def _build_confined(self, wanted: Build, building: _Building, ends_at: float, held: int) -> None:
        confines = self._confines.open_run(
            f"environment-{wanted.folder.name}",
            cpu_cores=_CORES,
            memory_bytes=self._limits.memory_bytes,
            share=CpuShare(_WEIGHT),
        )
        try:
            limits = CommandLimits(
                ends_at, self._limits.size_bytes, self._limits.reserve_bytes, tuple(confines.entry_files)
            )
            await build(wanted, limits, lambda line: building.say(f"environment: {line}"), held)
        except BuildFailedError as error:
            if not confines.ran_out_of_memory():
                raise
            message = f"it needs more than {self._limits.memory_bytes} bytes of memory to be built"
            raise BuildFailedError(message, for_good=False) from error
        finally:
            await asyncio.to_thread(_end_build, confines, wanted.folder)

    async def _lock(self, folder: Path, ends_at: float) -> Lock:
        """A lock on an environment, which a builder that an earlier life of the agent started may hold still."""
        while (lock := _taken(self._lock_of(folder))) is None:
            if asyncio.get_running_loop().time() > ends_at:
                raise BuildFailedError("another process has been building it for too long", for_good=False)
            await asyncio.sleep(_LOCK_SECONDS)
        return lock

    def _lock_of(self, folder: Path) -> Path:
        return self._folder / f".lock-{folder.name[0]}"  # few files, shared by many that are seldom built at once

    def _failure_of(self, folder: Path) -> Path:
        return self._folder / _FAILURES / folder.name

    def _remember_failure(self, folder: Path, message: str) -> None:
        failure = self._failure_of(folder)
        try:
            failure.parent.mkdir(exist_ok=True, mode=0o700)
            write_atomically(failure, message.encode())
            known = sorted(failure.parent.iterdir(), key=lambda path: path.stat().st_mtime)
            for old in known[:-_FAILURES_KEPT]:
                old.unlink()
        except OSError as error:
            _log.error("that an environment cannot be built is not remembered: %s", error)

    async def _make_room(self, newest: Path) -> None:
        try:
            await asyncio.to_thread(self._remove_oldest, newest)
        except (OSError, ValueError) as error:  # the newest is fine all the same
            _log.error("environments that nobody uses cannot be removed: %s", error)

    def _remove_oldest(self, newest: Path) -> None:
        """Remove what was not used for longest, until all is within its bound; never what a live run uses."""
        complete = [each for each in self._folder.glob("[!.]*") if _is_complete(each)]
        complete.sort(key=lambda each: (each / COMPLETE).stat().st_mtime)
        sizes = {each: size_of(each) for each in complete}
        for each in complete:
            if sum(sizes.values()) <= self._limits.size_bytes:
                return
            lock = _taken(self._lock_of(each))
            with lock or contextlib.nullcontext():
                if each != newest and lock is not None and self._give_up(each):
                    _log.info("environment %s goes, since there is too much of them", each.name)
                    folders.remove(each)
                    del sizes[each]

    def _take(self, folder: Path, run_id: str) -> bool:
        """Note that a run uses an environment; False if there is none."""
        with self._taking:
            if not _is_complete(folder):
                return False
            os.utime(folder / COMPLETE)
            users = folder / "users"
            users.mkdir(exist_ok=True, mode=0o700)
            self._is_used(folder)
            (users / run_id).touch()
            return True

    def _give_up(self, folder: Path) -> bool:
        """Let nobody take an environment any more; False if somebody uses it."""
        with self._taking:
            if self._is_used(folder):
                return False
            (folder / COMPLETE).unlink(missing_ok=True)
            return True

    def _is_used(self, folder: Path) -> bool:
        """Whether a live run uses it; those that are over are forgotten."""
        live = 0
        for user in (folder / "users").glob("*"):
            if self._is_live(user.name):
                live += 1
            else:
                user.unlink(missing_ok=True)
        return live > 0


def _taken(path: Path) -> Lock | None:
    """A lock, which whoever inherits its descriptor holds as well; None if somebody else has it."""
    try:
        return take(path)
    except LockHeldError:
        return None


def _end_build(confines: RunLimits, folder: Path) -> None:
    """Leave no process of a build and, if it failed, no file of it."""
    confines.close()
    if not _is_complete(folder):
        try:
            folders.remove(folder)
        except OSError as error:
            _log.error("an environment that was not finished cannot be removed: %s", error)


def _is_complete(folder: Path) -> bool:
    return (folder / COMPLETE).is_file() and python_of(folder).is_symlink()  # whose target may be of an image
