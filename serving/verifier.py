"""The server's side of the verifier: keeps the process alive and asks it, one artefact at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Any

from tiercel.serving.errors import ArtefactRefusedError, NotReadyError
from tiercel.serving.repository import Artefact
from tiercel.serving.verdict import Verdict

_logger = logging.getLogger(__name__)

_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_LINE_BYTES = 4 * 1024**2
# No secret in the server's environment reaches a process that reads hostile files.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class VerifierLimits:
    """What checking an artefact may take.

    Attributes:
        timeout: Seconds for one artefact.
        memory_bytes: Address space of the process that reads it.
        max_model_bytes: Largest ONNX file.
        max_reference_bytes: Largest reference, unpacked.
    """

    timeout: float
    memory_bytes: int
    max_model_bytes: int
    max_reference_bytes: int


@dataclass(slots=True)
class _Worker:
    """The process and its pipes."""

    process: Process
    requests: asyncio.StreamWriter
    answers: asyncio.StreamReader
    ready: bool = False


class Verifier:
    """A warm process that checks artefacts, renewed when it dies."""

    def __init__(self, limits: VerifierLimits) -> None:
        self._limits = limits
        self._lock = asyncio.Lock()
        self._worker: _Worker | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the verifier, or None when it does not run."""
        worker = self._worker
        return worker.process.pid if worker and worker.process.returncode is None else None

    async def start(self) -> None:
        """Start the process; it warms up while the caller goes on."""
        await self._start()

    async def stop(self) -> None:
        """End the process; what it was asked last is not answered."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if worker.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at this moment
                worker.process.kill()
        worker.requests.close()
        await worker.process.wait()

    async def verify(self, artefact: Artefact) -> Verdict:
        """Check an artefact.

        Raises:
            ArtefactRefusedError: It failed a check, or the process died of it.
            NotReadyError: The verifier cannot be started.
        """
        limits = self._limits
        request = {
            "path": str(artefact.path.absolute()),
            "reference": str(artefact.reference.absolute()),
            "timeout": limits.timeout,
            "memory_bytes": limits.memory_bytes,
            "max_model_bytes": limits.max_model_bytes,
            "max_reference_bytes": limits.max_reference_bytes,
        }
        async with self._lock:
            answer = await self._ask(await self._warm_worker(), request)
        if "refused" in answer:
            raise ArtefactRefusedError(str(answer["refused"]))
        return Verdict(answer["sha256"], answer["shapes"], answer["has_loop"])

    async def _start(self) -> _Worker:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tiercel.serving.verifier_process"),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            limit=_LINE_BYTES,
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("asyncio gave no pipes to the verifier although both were asked for")
        self._worker = _Worker(process, process.stdin, process.stdout)
        return self._worker

    async def _warm_worker(self) -> _Worker:
        worker = self._worker
        if worker is None or worker.process.returncode is not None:
            await self.stop()
            worker = await self._start()
        if not worker.ready:
            if await self._line(worker, _START_SECONDS) is None:
                raise NotReadyError("the process that verifies models does not start; see the server's log")
            worker.ready = True
        return worker

    async def _ask(self, worker: _Worker, request: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(ConnectionError):  # a dead process is found by what it does not answer
            worker.requests.write(json.dumps(request).encode() + b"\n")
            await worker.requests.drain()
        line = await self._line(worker, self._limits.timeout + _GRACE_SECONDS)
        if line is None:
            _logger.error("The verifier died over %s and was renewed", request["path"])
            return {"refused": "the verifier died while it checked the artefact, and was renewed; load it again"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _line(self, worker: _Worker, timeout: float) -> bytes | None:
        """The next line of the process; None after renewing one that died or was mute for ``timeout`` seconds."""
        line = b""
        try:
            async with asyncio.timeout(timeout):
                line = await worker.answers.readline()
        except TimeoutError:
            _logger.error("The verifier did not answer within %g s", timeout)  # noqa: TRY400 - there is no defect to trace
        finally:
            if not line.endswith(b"\n"):  # also when this task is cancelled: a late answer would be taken for the next
                await self.stop()
                await self._start()
        return line if line.endswith(b"\n") else None
