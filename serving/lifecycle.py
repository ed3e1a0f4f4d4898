"""Load → verify → build → warm → flip → drain → release, all of it off the request path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

from tiercel.serving import engine, repository
from tiercel.serving.errors import ArtefactRefusedError, NotFoundError, ServingError
from tiercel.serving.registry import LoadedVersion, ModelRecord, Registry, VersionState
from tiercel.serving.repository import Artefact
from tiercel.serving.verdict import Verdict

_logger = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class ArtefactVerifier(Protocol):
    """Whoever says whether an artefact is fit to be served."""

    def verify(self, artefact: Artefact) -> Awaitable[Verdict]:
        """Check it; raises ArtefactRefusedError."""


StartTask = Callable[[Coroutine[Any, Any, None], str], object]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How sessions are built.

    Attributes:
        threads: Threads that one run may use.
        inline_budget: Seconds a run may take on the event loop.
        max_model_bytes: Largest ONNX file.
    """

    threads: int
    inline_budget: float
    max_model_bytes: int


class Lifecycle:
    """Brings versions up and down.

    Args:
        root: The repository's folder.
        registry: Where what is live is kept.
        verifier: Checks artefacts.
        options: How sessions are built.
        start_task: Starts a task that somebody owns; used for draining old versions.
    """

    def __init__(
        self, root: Path, registry: Registry, verifier: ArtefactVerifier, options: BuildOptions, start_task: StartTask
    ) -> None:
        self._root = root
        self._registry = registry
        self._verifier = verifier
        self._options = options
        self._start_task = start_task
        self._locks: dict[str, asyncio.Lock] = {}
        # One thread: files, hashes and sessions, never on the event loop and never in the way of inference threads.
        self._thread = ThreadPoolExecutor(1, "loader")

    def close(self) -> None:
        """Let the loading thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def load(self, name: str) -> int:
        """Let the newest version on disk answer; doing it twice is doing it once.

        Returns:
            The version that is live now.

        Raises:
            InvalidRequestError: The name is impossible.
            NotFoundError: There is no version of it on disk.
            ArtefactRefusedError: The newest version is not fit; what was live stays live.
        """
        await self._versions(name)  # a name that is not on disk gets no lock
        async with self._locks.setdefault(name, asyncio.Lock()):
            newest = (await self._versions(name))[0]
            record = self._registry.record(name)
            if record.live is None or record.live.version != newest:
                await self._bring_up(record, newest)
            return newest

    async def unload(self, name: str) -> None:
        """Stop answering for a model; requests in flight finish.

        Raises:
            NotFoundError: The model was never loaded.
        """
        record = self._registry.known(repository.checked_name(name))
        if record is None:
            raise NotFoundError(f"model '{name}' is not loaded")
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._retire(record.flip(None), record, "unloaded")

    async def load_all(self) -> None:
        """Load each model of the repository: the newest version that passes."""
        for name in await self._in_thread(repository.model_names, self._root):
            async with self._locks.setdefault(name, asyncio.Lock()):
                if self._registry.record(name).live is None:
                    await self._load_newest_good(name)
        self._registry.ready = True

    async def index(self, only_ready: bool) -> list[dict[str, str]]:
        """The repository's index as the protocol has it."""
        on_disk = await self._in_thread(repository.model_names, self._root)
        return [
            {"name": line.name, "version": line.version, "state": line.state, "reason": line.reason}
            for line in self._registry.index(on_disk, only_ready)
        ]

    async def _load_newest_good(self, name: str) -> None:
        record = self._registry.record(name)
        for version in await self._in_thread(repository.versions_on_disk, self._root, name):
            try:
                await self._bring_up(record, version)
            except ServingError as error:
                _logger.warning("%s", error.message)
            else:
                return

    async def _versions(self, name: str) -> list[int]:
        versions = await self._in_thread(repository.versions_on_disk, self._root, name)
        if not versions:
            raise NotFoundError(f"model '{name}' has no version on disk; put one at {name}/1/model.onnx")
        return versions

    async def _bring_up(self, record: ModelRecord, version: int) -> None:
        record.set_status(version, VersionState.LOADING)
        artefact = repository.artefact(self._root, record.name, version)
        try:
            verdict = await self._verifier.verify(artefact)
            session = await self._in_thread(_build, artefact, verdict, self._options)
        except ArtefactRefusedError as error:
            record.set_status(version, VersionState.UNAVAILABLE, error.message)
            still = f"version {record.live.version} stays live" if record.live else "no version of it is live"
            raise ArtefactRefusedError(
                f"version {version} of model '{record.name}' was refused: {error.message}; {still}"
            ) from error
        except BaseException:
            record.set_status(version, VersionState.UNAVAILABLE, "loading it was broken off")
            raise
        old = record.flip(LoadedVersion(record.name, version, session, record.account))
        _logger.info("Version %d of model '%s' is live", version, record.name)
        self._retire(old, record, f"replaced by version {version}")

    def _retire(self, old: LoadedVersion | None, record: ModelRecord, reason: str) -> None:
        if old is not None:
            self._start_task(self._drain(old, record, reason), f"drain {old.model} {old.version}")

    async def _drain(self, old: LoadedVersion, record: ModelRecord, reason: str) -> None:
        await old.wait_drained()
        await self._in_thread(_release, old)
        if record.live is None or record.live.version != old.version:
            record.set_status(old.version, VersionState.UNAVAILABLE, reason)

    async def _in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _release(old: LoadedVersion) -> None:
    old.close()
    engine.give_memory_back()


def _build(artefact: Artefact, verdict: Verdict, options: BuildOptions) -> engine.Session:
    data = engine.read_artefact(artefact.path, options.max_model_bytes)
    if engine.digest(data) != verdict.sha256:
        raise ArtefactRefusedError("the file changed while it was being verified; load it again")
    inline_budget = 0.0 if verdict.has_loop else options.inline_budget
    return engine.build_session(data, verdict.shapes, options.threads, inline_budget)
