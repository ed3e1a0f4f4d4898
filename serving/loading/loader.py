"""From a file on disk to a warm session: copy, verify, build. All of it off the event loop, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from tiercel.core.deploying import MAX_MODEL_BYTES
from tiercel.core.errors import UnavailableError
from tiercel.serving.loading.stages import new_stage
from tiercel.serving.models.accuracy import accuracy_of
from tiercel.serving.models.labels import read_labels
from tiercel.serving.models.repository import Artefact
from tiercel.serving.runtime import artefact_file, engine
from tiercel.serving.runtime.artefact_file import SealedFile
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.model_settings import ModelSettings, read_model_settings
from tiercel.serving.runtime.placement import MakeRoom, NoRoomError, Placement, on_the_cpu
from tiercel.serving.runtime.providers import CPU_ONLY, Order, Provider, order_for
from tiercel.serving.runtime.running import Mark, RunningMarks
from tiercel.serving.verification.verdict import Verdict

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_logger = logging.getLogger(__name__)

# Building a session keeps a core busy, and requests want the others.
_BUILDS = 2


class ArtefactVerifier(Protocol):
    """Whoever says whether an artefact is fit to be served."""

    def verify(
        self, artefact: Artefact, model: SealedFile, batch_rows: int, known: Batching | None
    ) -> Awaitable[Verdict]:
        """Check it, and find out what batches of up to so many rows take, if more than 1; or confirm what is known.

        Raises ArtefactRefusedError.
        """


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How sessions are built."""

    threads: int  # threads that one run may use
    inline_budget: float  # seconds a run may take on the event loop
    max_model_bytes: int  # what a model may have with its weights beside it
    max_batch_rows: int = 1  # rows of several requests that may run together at most
    side_by_side: int = 4  # models that may be on their way at the same time, so that a slow one holds up no other
    # Bytes of memory that all runs of one model may take together, beside what it takes when loaded.
    run_bytes: int = 1024**3
    answer_bytes: int = engine.MAX_ANSWER_BYTES  # largest outputs of one request


@dataclass(frozen=True, slots=True)
class Replaced:
    """The version that a new one takes the place of."""

    session: engine.Session  # its session
    make_room: MakeRoom | None = None  # how to move it off the accelerator meanwhile, where it may be


@dataclass(frozen=True, slots=True)
class _Found:
    """What a version has on disk, not checked yet."""

    copy: SealedFile
    settings: ModelSettings
    labels: tuple[str, ...]
    accuracy: float | None  # a fraction
    sha256: str
    providers: tuple[Provider, ...]  # the first choice first


@dataclass(frozen=True, slots=True)
class _Checked:
    """A version that passed all checks."""

    name: str  # for the log
    mark: str  # what it is called among those that run
    copy: SealedFile
    verdict: Verdict
    settings: ModelSettings
    is_original: bool  # and not one that was made of it, which generates nothing


class Loader:
    """Makes sessions of artefacts and frees them again.

    Args:
        placement: Where they go; all on the CPU if None.

    Attributes:
        shadows: Where a new version does runs again to compare outputs.
    """

    def __init__(
        self,
        verifier: ArtefactVerifier,
        options: BuildOptions,
        placement: Placement | None = None,
        marks: RunningMarks | None = None,
    ) -> None:
        self._marks = marks if marks is not None else RunningMarks()
        self._verifier = verifier
        self._options = options
        self._placement = placement if placement is not None else on_the_cpu()
        self._slots = asyncio.Semaphore(options.side_by_side)
        # Apart from the slots: whoever waits for a version to move has one of them.
        self._moves = asyncio.Semaphore(1)
        # Sessions are built and freed in threads of their own, never in the way of those that answer requests.
        self._builders = ThreadPoolExecutor(_BUILDS, "loader")
        # What takes no time to speak of does not stand in line behind what does.
        self._files = ThreadPoolExecutor(1, "files")
        self.shadows = ThreadPoolExecutor(1, "shadow")

    def close(self) -> None:
        """Let the threads go."""
        for threads in (self._builders, self._files, self.shadows):
            threads.shutdown(wait=False, cancel_futures=True)

    async def session(self, artefact: Artefact, replaced: Replaced | None = None) -> engine.Session:
        """A warm session of an artefact that passed all checks, on the first provider that takes it.

        Args:
            artefact: Where it lies.
            replaced: The version whose place it takes, if there is one.

        Raises:
            ArtefactRefusedError: It is not fit to be served, or the accelerator has no room for it beside the version
                it replaces; one that replaces none there goes to the CPU instead.
            NotReadyError: Nothing can be verified at the moment, or the version it replaces cannot be moved.
        """
        async with self._slots:
            return await self._load(artefact, self._placement.order, replaced)

    async def session_on_cpu(self, artefact: Artefact) -> engine.Session:
        """The same on the CPU, whatever is wanted otherwise.

        Raises:
            ArtefactRefusedError: It is not fit to be served.
            NotReadyError: Nothing can be verified at the moment.
        """
        async with self._moves:
            return await self._load(artefact, CPU_ONLY)

    async def _load(self, artefact: Artefact, order: Order, replaced: Replaced | None = None) -> engine.Session:
        found = await self._build(self._find, artefact.path, order)
        try:
            rows = self._rows_to_try(found)
            known = _known_batching(replaced) if rows > 1 else None
            verdict = await self._verifier.verify(artefact, found.copy, rows, known)
        except BaseException:
            self._discard(found.copy)
            raise
        name = f"version {artefact.version} of model '{artefact.model}'"
        mark = f"{artefact.model}/{artefact.version}"
        checked = _Checked(name, mark, found.copy, verdict, found.settings, artefact.is_compared)
        if found.providers[0].is_accelerator:
            session = await self._accelerated(checked, found.providers, replaced)
        else:
            session, _ = await self._build(self._session, checked, found.providers, 0)
            await asyncio.sleep(0)  # requests that came while a step of the load kept Python's lock come first
        session.labels, session.accuracy, session.sha256 = found.labels, found.accuracy, found.sha256
        session.apply(found.settings)
        if session.batching.reason and self._options.max_batch_rows > 1:
            what = (artefact.version, artefact.model, session.batching.reason)
            _logger.info("Requests to version %d of model '%s' run one by one: %s", *what)
        return session

    def _find(self, model: Path, order: Order) -> _Found:
        """Read all that a version has, in one go: a change of threads costs requests more than a small file."""
        settings = read_model_settings(model)
        labels, accuracy = read_labels(model), accuracy_of(model.parent)
        providers = self._placement.devices.usable(order_for(order, settings.provider))
        copy = self._copy_of(model)
        return _Found(copy, settings, labels, accuracy, copy.sha256(), providers)

    def _copy_of(self, model: Path) -> SealedFile:
        """A copy of a model that nobody else can change, and of its weights if they are beside its file."""
        most = self._options.max_model_bytes
        copy = artefact_file.sealed_copy(model, min(most, MAX_MODEL_BYTES))
        data = model.with_name(f"{model.name}.data")
        if not os.path.lexists(data):
            return copy
        try:
            artefact_file.add_data(copy, data, new_stage(model.parents[2]), most)
        except OSError as error:
            copy.close()
            raise UnavailableError(f"the model repository cannot be written to: {error.strerror}") from error
        except BaseException:
            copy.close()
            raise
        return copy

    def _rows_to_try(self, found: _Found) -> int:
        """The largest batch that is of interest to the checks, which run a model on one thread of the CPU."""
        is_alike = self._options.threads == 1 and not found.providers[0].is_accelerator
        return self._options.max_batch_rows if is_alike else 1

    async def _accelerated(
        self, checked: _Checked, providers: tuple[Provider, ...], replaced: Replaced | None
    ) -> engine.Session:
        memory = self._placement.memory
        old = replaced.session.holding if replaced is not None else None
        make_room = replaced.make_room if replaced is not None else None
        async with contextlib.AsyncExitStack() as stack:
            try:
                wanted = memory.place(checked.verdict.weight_bytes, old, make_room, checked.settings.memory_limit)
                place = await stack.enter_async_context(wanted)
            except NoRoomError as error:
                if old is not None or Provider.CPU not in providers:
                    self._discard(checked.copy)
                    raise
                _logger.warning("%s runs on cpu, not on %s: %s", checked.name, providers[0].value, error.message)
                session, _ = await self._build(self._session, checked, (Provider.CPU,), 0)
                return session
            except BaseException:
                self._discard(checked.copy)
                raise
            session, took = await self._build(self._session, checked, providers, place.limit)
            if session.provider.is_accelerator:
                memory.settle(place, took)
                session.holding = place.holding
            else:
                memory.release(place.holding)
            return session

    def _discard(self, copy: SealedFile) -> None:
        """Close a copy that nobody has begun to load."""
        with contextlib.suppress(RuntimeError):  # the server leaves, and its memory with it
            self._builders.submit(copy.close)

    def _session(
        self, checked: _Checked, providers: tuple[Provider, ...], memory_limit: int
    ) -> tuple[engine.Session, int]:
        """A session, and by how many bytes the accelerator's free memory fell while it was built."""
        options, devices, verdict = self._options, self._placement.devices, checked.verdict
        # The time of a loop depends on values, and how often it runs may depend on all rows together.
        inline_budget, batch_rows = (0.0, 1) if verdict.has_loop else (options.inline_budget, options.max_batch_rows)
        before = devices.free_bytes() if providers[0].is_accelerator else 0
        opener = partial(
            devices.open,
            providers=providers,
            memory_limit=memory_limit,
            arena_bytes=verdict.loaded_bytes + options.run_bytes,
            name=checked.name,
        )
        mark = self._marks.take(checked.mark)
        with contextlib.closing(checked.copy) as copy, self._marked(mark):
            session = engine.build_session(
                copy.path,
                verdict.shapes,
                options.threads,
                inline_budget,
                batch_rows,
                opener,
                verdict.batching,
                options.answer_bytes,
            )
            if checked.is_original:
                _try_decoding(session)
        session.mark = mark
        after = devices.free_bytes() if session.provider.is_accelerator else before
        return session, max(0, before - after)

    @contextlib.contextmanager
    def _marked(self, mark: Mark) -> Iterator[None]:
        """A version that is loaded runs already."""
        mark.byte[0] = 1
        try:
            yield
        except BaseException:
            self._marks.give_back(mark)
            raise
        mark.byte[0] = 0

    async def free(self, session: engine.Session) -> None:
        """Free a session that nobody runs any more."""
        await self._build(session.close)
        self._marks.give_back(session.mark)
        if session.holding is not None:
            self._placement.memory.release(session.holding)

    async def look_up(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run something short that reads folders."""
        return await asyncio.get_running_loop().run_in_executor(self._files, function, *arguments)

    async def _build(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._builders, function, *arguments)


def _try_decoding(session: engine.Session) -> None:
    try:
        session.try_decoding()
    except BaseException:
        session.close()
        raise


def _known_batching(replaced: Replaced | None) -> Batching | None:
    """What was measured on the CPU of the version that is replaced."""
    if replaced is None or replaced.session.provider.is_accelerator or replaced.session.batching.profile is None:
        return None
    return replaced.session.batching
