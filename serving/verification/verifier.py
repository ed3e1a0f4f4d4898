"""The server's side of the verifier: keeps the process alive and asks it, several artefacts at a time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass, field
from typing import Any

from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving import memory
from tiercel.serving.child_environment import child_environment
from tiercel.serving.models.repository import Artefact
from tiercel.serving.runtime.artefact_file import SealedFile
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.verification.verdict import MAX_MESSAGE_BYTES, Verdict, read_verdict

_logger = logging.getLogger(__name__)

_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_DIED = "the verifier died while it checked the artefact, and was renewed; load it again"
_NO_VERDICT = "the process that checked it said what no honest one says; the file is hostile"

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VerifierLimits:
    """What checking an artefact may take."""

    timeout: float  # seconds for one artefact
    memory_bytes: int  # address space of the process that reads it, beside what weights beside the model take
    max_reference_bytes: int  # largest reference, unpacked
    # Bytes of memory that a model may take beside what its file accounts for, once it has been loaded and run on its
    # reference.
    run_bytes: int = 1024**3


@dataclass(slots=True)
class _Worker:
    """The process, the socket to it, and who waits for which of its answers; None is the answer of a dead one."""

    process: Process
    socket: socket.socket
    ready: asyncio.Future[Answer | None]
    waiting: dict[int, asyncio.Future[Answer | None]] = field(default_factory=dict)

    def listen(self) -> None:
        """Begin to hear answers."""
        asyncio.get_running_loop().add_reader(self.socket, self._hear)

    def close(self) -> None:
        """Stop hearing; what was asked gets no answer any more."""
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.socket)
            self.socket.close()
        for future in (self.ready, *self.waiting.values()):
            if not future.done():
                future.set_result(None)

    def _hear(self) -> None:
        try:
            message = self.socket.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.close()
            return
        answer: Answer = json.loads(message)
        future = self.waiting.get(answer["key"]) if "key" in answer else self.ready
        if future is not None and not future.done():
            future.set_result(answer)


class Verifier:
    """A warm process that checks artefacts, renewed when it dies."""

    def __init__(self, limits: VerifierLimits) -> None:
        self._limits = limits
        self._starting = asyncio.Lock()
        self._worker: _Worker | None = None
        self._keys = itertools.count()

    @property
    def pid(self) -> int | None:
        """Process id of the verifier, or None when it does not run."""
        worker = self._worker
        return worker.process.pid if worker and worker.process.returncode is None else None

    async def start(self) -> None:
        """Start the process; it warms up while the caller goes on."""
        async with self._starting:
            self._worker = await self._start()

    async def stop(self) -> None:
        """End the process; what it was asked last is not answered."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await _end(worker)

    async def verify(
        self, artefact: Artefact, model: SealedFile, batch_rows: int = 1, known: Batching | None = None
    ) -> Verdict:
        """Check an artefact.

        Args:
            artefact: Where it lies, for its reference.
            model: Its ONNX file.
            batch_rows: The largest batch of which to find out how long it takes; 1 for none.
            known: What was found of the version before it; that is only confirmed then.

        Raises:
            ArtefactRefusedError: It failed a check, or the process died of it.
            UnavailableError: The verifier cannot be started.
        """
        worker = await self._warm_worker()
        answer = await self._ask(worker, artefact, model, batch_rows, known)
        if answer is None:
            _logger.error("The verifier died over %s and is renewed", artefact.path)
            await self._renew(worker)
            raise ArtefactRefusedError(_DIED)
        if "refused" in answer:
            raise ArtefactRefusedError(str(answer["refused"]))
        try:
            return read_verdict(answer, batch_rows)
        except ValueError as error:
            raise ArtefactRefusedError(_NO_VERDICT) from error

    async def _start(self) -> _Worker:
        environment = child_environment() | memory.environment_with_huge_pages()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tiercel.serving.verification.verifier_process"),
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                env=environment,
            )
        ours.setblocking(False)
        worker = _Worker(process, ours, asyncio.get_running_loop().create_future())
        worker.listen()
        return worker

    async def _warm_worker(self) -> _Worker:
        worker = self._worker
        if worker is None or worker.process.returncode is not None or worker.socket.fileno() < 0:
            worker = await self._renew(worker)
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await asyncio.shield(worker.ready)
        except TimeoutError:
            ready = None
        if ready is None:
            await self._renew(worker)
            raise UnavailableError("the process that verifies models does not start; see the server's log")
        return worker

    async def _renew(self, dead: _Worker | None) -> _Worker:
        """The worker that follows ``dead``, which is ended if it is not yet."""
        async with self._starting:
            if self._worker is dead or self._worker is None:
                if dead is not None:
                    await _end(dead)
                self._worker = await self._start()
            return self._worker

    async def _ask(
        self, worker: _Worker, artefact: Artefact, model: SealedFile, batch_rows: int, known: Batching | None
    ) -> Answer | None:
        """What the process says of an artefact; None when it died or is mute."""
        limits = self._limits
        key = next(self._keys)
        request = {
            "key": key,
            "reference": str(artefact.reference.absolute()),
            "timeout": limits.timeout,
            "memory_bytes": limits.memory_bytes,
            "max_reference_bytes": limits.max_reference_bytes,
            "run_bytes": limits.run_bytes,
            "batch_rows": batch_rows,
            "known": dataclasses.asdict(known) if known is not None else None,
            "is_compared": artefact.is_compared,
            "path": "" if model.folder is None else model.path,
            "data_bytes": model.data_bytes,
        }
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        worker.waiting[key] = future
        try:
            socket.send_fds(worker.socket, [json.dumps(request).encode()], [model.descriptor])
            async with asyncio.timeout(limits.timeout + _GRACE_SECONDS):
                return await future
        except TimeoutError:
            _logger.error("The verifier did not answer within %g s", limits.timeout)  # noqa: TRY400 - no defect to trace
            return None
        except OSError:
            return None
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                worker.socket.send(json.dumps({"break_off": key}).encode())
            raise
        finally:
            del worker.waiting[key]


async def _end(worker: _Worker) -> None:
    if worker.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it may end by itself at this moment
            worker.process.kill()
    worker.close()
    await worker.process.wait()
