"""From a file on disk to a warm session: copy, verify, build. All of it off the event loop, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple

from tiercel.serving.models import artefact_file, engine
from tiercel.serving.models.artefact_file import SealedFile
from tiercel.serving.models.labels import read_labels
from tiercel.serving.models.repository import Artefact
from tiercel.serving.verification.verdict import Verdict

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_logger = logging.getLogger(__name__)

# Building a session keeps a core busy, and requests want the others.
_BUILDS = 2


class ArtefactVerifier(Protocol):
    """Whoever says whether an artefact is fit to be served."""

    def verify(self, artefact: Artefact, model: SealedFile) -> Awaitable[Verdict]:
        """Check it; raises ArtefactRefusedError."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How sessions are built.

    Attributes:
        threads: Threads that one run may use.
        inline_budget: Seconds a run may take on the event loop.
        max_model_bytes: Largest ONNX file.
        max_batch_rows: Rows of several requests that may run together at most.
        side_by_side: Models that may be on their way at the same time, so that a slow one holds up no other.
    """

    threads: int
    inline_budget: float
    max_model_bytes: int
    max_batch_rows: int = 1
    side_by_side: int = 4


class Loader:
    """Makes sessions of artefacts and frees them again.

    Args:
        verifier: Checks artefacts.
        options: How sessions are built.

    Attributes:
        shadows: Where a new version does runs again to compare outputs.
    """

    def __init__(self, verifier: ArtefactVerifier, options: BuildOptions) -> None:
        self._verifier = verifier
        self._options = options
        self._slots = asyncio.Semaphore(options.side_by_side)
        # Sessions are built and freed in threads of their own, never in the way of those that answer requests.
        self._builders = ThreadPoolExecutor(_BUILDS, "loader")
        # What takes no time to speak of does not stand in line behind what does.
        self._files = ThreadPoolExecutor(1, "files")
        self.shadows = ThreadPoolExecutor(1, "shadow")

    def close(self) -> None:
        """Let the threads go."""
        for threads in (self._builders, self._files, self.shadows):
            threads.shutdown(wait=False, cancel_futures=True)

    async def session(self, artefact: Artefact) -> engine.Session:
        """A warm session of an artefact that passed all checks.

        Raises:
            ArtefactRefusedError: It is not fit to be served.
            NotReadyError: Nothing can be verified at the moment.
        """
        options = self._options
        labels = await self.look_up(read_labels, artefact.path)
        async with self._slots:
            copy = await self._build(artefact_file.sealed_copy, artefact.path, options.max_model_bytes)
            try:
                verdict = await self._verifier.verify(artefact, copy)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the server leaves, and its memory with it
                    self._builders.submit(copy.close)
                raise
            session = await self._build(_session, copy, verdict, options)
            session.labels = labels
            if session.batching.reason and options.max_batch_rows > 1:
                what = (artefact.version, artefact.model, session.batching.reason)
                _logger.info("Requests to version %d of model '%s' run one by one: %s", *what)
            return session

    async def free(self, session: engine.Session) -> None:
        """Free a session that nobody runs any more."""
        await self._build(session.close)

    async def look_up(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run something short that reads folders."""
        return await asyncio.get_running_loop().run_in_executor(self._files, function, *arguments)

    async def _build(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._builders, function, *arguments)


def _session(copy: SealedFile, verdict: Verdict, options: BuildOptions) -> engine.Session:
    # The time of a loop depends on values, and how often it runs may depend on all rows together.
    inline_budget, batch_rows = (0.0, 1) if verdict.has_loop else (options.inline_budget, options.max_batch_rows)
    with contextlib.closing(copy):
        return engine.build_session(copy.path, verdict.shapes, options.threads, inline_budget, batch_rows)
