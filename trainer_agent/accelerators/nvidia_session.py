"""One session with NVIDIA's driver, from ``nvmlInit`` to ``nvmlShutdown``: handles are good within one only."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tiercel.trainer_agent.accelerators import nvidia_health, nvml
from tiercel.trainer_agent.accelerators.contract import (
    Accelerator,
    AcceleratorReading,
    AcceleratorsUnavailableError,
    ProcessUse,
)
from tiercel.trainer_agent.accelerators.nvidia_health import Xids
from tiercel.trainer_agent.accelerators.nvml import Handle, Nvml
from tiercel.trainer_agent.accelerators.process_time import ProcessTime, Sample

_log = logging.getLogger(__name__)

_EVENTS_A_LOOK: Final = 64
_PERCENT: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Part:
    """What counts as an accelerator: a whole card, or a slice of one."""

    accelerator: Accelerator
    handle: Handle
    instance: int | None = None  # its GPU instance on the card; None for a whole card


@dataclass(frozen=True, slots=True)
class _Card:
    """A card: one accelerator, or its slices while MIG is on."""

    id: str
    handle: Handle
    parts: tuple[_Part, ...]
    time: ProcessTime = field(default_factory=ProcessTime)


class Session:
    """See the module.

    Raises:
        AcceleratorsUnavailableError: The driver does not answer; says what it says.
    """

    def __init__(self, library: Nvml, xids: Xids, clock: Callable[[], float]) -> None:
        self._nvml = library
        self._xids = xids
        self._clock = clock
        self._looked_at = clock()
        self.left_out: list[str] = []
        """What the driver says about cards that it does not describe."""
        self.is_broken = False
        """Whether an accelerator did not answer: it takes a new session to find it again, or to find it gone."""
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise AcceleratorsUnavailableError(f"NVML says: {error}") from None
        try:
            self._cards = tuple(self._find_cards())
            self._events = self._listen()
        except library.NVMLError as error:
            library.nvmlShutdown()
            raise AcceleratorsUnavailableError(f"NVML says: {error}") from None

    @property
    def listed(self) -> tuple[Accelerator, ...]:
        """The accelerators of all cards, in the order of the bus."""
        return tuple(part.accelerator for card in self._cards for part in card.parts)

    def look(self) -> dict[str, AcceleratorReading]:
        """A reading of each accelerator, by its id."""
        now = self._clock()
        elapsed, self._looked_at = now - self._looked_at, now
        self._ingest_events(now)
        readings = [reading for card in self._cards for reading in self._look_at(card, elapsed, now)]
        return {reading.accelerator_id: reading for reading in readings}

    def close(self) -> None:
        """End it."""
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _find_cards(self) -> Iterator[_Card]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                card = _Card(self._nvml.nvmlDeviceGetUUID(handle), handle, tuple(self._find_parts(handle)))
            except self._nvml.NVMLError as error:
                self.left_out.append(f"GPU {index}: {error}")
                continue
            if not card.parts:
                self.left_out.append(f"GPU {index}: MIG is on and it has no slices")
            yield card

    def _find_parts(self, card: Handle) -> Iterator[_Part]:
        mode = self._ask(self._nvml.nvmlDeviceGetMigMode, card)
        if not mode or not mode[0]:
            yield _Part(self._describe(card), card)
            return
        for index in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
            part = self._ask(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
            if part is not None:  # there may be gaps
                yield _Part(self._describe(part), part, self._nvml.nvmlDeviceGetGpuInstanceId(part))

    def _describe(self, handle: Handle) -> Accelerator:
        total, _ = self._memory(handle)
        return Accelerator(self._nvml.nvmlDeviceGetUUID(handle), self._nvml.nvmlDeviceGetName(handle), total)

    def _look_at(self, card: _Card, elapsed: float, now: float) -> list[AcceleratorReading]:
        try:
            lasting = self._health(card.handle)
            times = self._process_times(card, elapsed)
        except self._nvml.NVMLError as error:
            return [self._faulty(card, part, error, now) for part in card.parts]
        return [self._read(card, part, lasting, times, now) for part in card.parts]

    def _read(
        self, card: _Card, part: _Part, lasting: str, times: dict[int, float] | None, now: float
    ) -> AcceleratorReading:
        try:
            rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, part.handle)
            return AcceleratorReading(
                accelerator_id=part.accelerator.id,
                utilisation=None if rates is None else rates.gpu / _PERCENT,
                memory_utilisation=None if rates is None else rates.memory / _PERCENT,
                memory_used_bytes=self._memory(part.handle)[1],
                problem=_joined(lasting, self._xids.problem(card.id, part.instance, now)),
                processes=self._processes(part.handle, times),
            )
        except self._nvml.NVMLError as error:
            return self._faulty(card, part, error, now)

    def _faulty(self, card: _Card, part: _Part, error: Exception, now: float) -> AcceleratorReading:
        self.is_broken = True
        fault = nvidia_health.fault(nvml.code_of(error), str(error))
        return AcceleratorReading(
            part.accelerator.id, problem=_joined(fault, self._xids.problem(card.id, part.instance, now))
        )

    def _health(self, card: Handle) -> str:
        """What is wrong with a card for longer than a moment."""
        errors = self._ask(self._nvml.nvmlDeviceGetTotalEccErrors, card, nvml.UNCORRECTED, nvml.SINCE_DRIVER_LOAD)
        rows = self._ask(self._nvml.nvmlDeviceGetRemappedRows, card)
        fields = self._ask(self._nvml.nvmlDeviceGetFieldValues, card, [nvml.RECOVERY_ACTION_FIELD])
        action = fields[0].value.uiVal if fields and not fields[0].nvmlReturn else 0
        return _joined(
            nvidia_health.recovery(action),
            nvidia_health.remapping_failed(failed=bool(rows and rows[3])),
            nvidia_health.uncorrected_errors(errors or 0),
        )

    def _memory(self, handle: Handle) -> tuple[int, int]:
        """All memory that programs can have, and what is held of it; in bytes, 0 where the driver does not say."""
        apart = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle, nvml.MEMORY_V2)
        if apart is not None:
            return apart.total - apart.reserved, apart.used
        try:
            together = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError as error:
            # The one question that every accelerator answers: whatever else is said to it is the accelerator's trouble.
            if nvml.code_of(error) == nvml.NOT_SUPPORTED:
                return 0, 0
            raise
        return together.total, together.used

    def _processes(self, handle: Handle, times: dict[int, float] | None) -> dict[int, ProcessUse]:
        held: dict[int, int] = {}
        for ask in (
            self._nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            self._nvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
            self._nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            for process in self._ask(ask, handle) or ():
                # One that is in several lists has all of its memory in each.
                held[process.pid] = max(held.get(process.pid, 0), process.usedGpuMemory or 0)
        if times is None:
            return {pid: ProcessUse(size) for pid, size in held.items()}
        return {pid: ProcessUse(held.get(pid, 0), times.get(pid, 0.0)) for pid in held.keys() | times.keys()}

    def _process_times(self, card: _Card, elapsed: float) -> dict[int, float] | None:
        """Accelerator seconds of processes since the last look; None where the driver does not say."""
        if any(part.instance is not None for part in card.parts):
            return None
        found = self._ask(self._nvml.nvmlDeviceGetProcessUtilization, card.handle, card.time.last_seen)
        samples = [Sample(one.pid, one.timeStamp, one.smUtil) for one in found or ()]
        return card.time.take(samples, elapsed)

    def _listen(self) -> Handle | None:
        """Listen for error events from now on; None where the driver sends none."""
        events = self._ask(self._nvml.nvmlEventSetCreate)
        for card in self._cards if events is not None else ():
            with contextlib.suppress(self._nvml.NVMLError):  # one that is lost by now is found so by the first look
                self._nvml.nvmlDeviceRegisterEvents(card.handle, nvml.XID_EVENT, events)
        return events

    def _ingest_events(self, now: float) -> None:
        """Take in the events since the last look, without waiting for any."""
        if self._events is None:
            return
        for _ in range(_EVENTS_A_LOOK):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                card = self._nvml.nvmlDeviceGetUUID(event.device)
            except self._nvml.NVMLError as error:
                if nvml.code_of(error) != nvml.TIMEOUT:  # a lost card, which is asked next
                    _log.debug("no events: %s", error)
                return
            _log.warning("GPU %s: Xid %d", card, event.eventData)
            self._xids.note(card, event.gpuInstanceId, event.eventData, now)

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T | None:
        """What the driver says, None where it has no answer; raises where the accelerator is lost or needs a reset."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            if nvml.code_of(error) in nvml.LASTING:
                raise
            return None


def _joined(*messages: str) -> str:
    return " ".join(filter(None, messages))
