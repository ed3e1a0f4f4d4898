"""NVIDIA's management library without a GPU: the names and errors of the module ``pynvml``, with answers of real cards.

What the cards answer can be changed while it is in use, or lies in a JSON file for an agent in a process of its own.
"""

# ruff: noqa: N802, N803 - the names are NVIDIA's

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1024**2

ERRORS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    6: "Not Found",
    7: "Insufficient Size",
    9: "Driver Not Loaded",
    10: "Timeout",
    12: "NVML Shared Library Not Found",
    15: "GPU is lost",
    16: "GPU requires restart",
    999: "Unknown Error",
}
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED = 1, 2, 3, 6, 9
TIMEOUT, LIBRARY_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 10, 12, 15, 16
ALL_OF_A_CARD = 0xFFFFFFFF


class NVMLError(Exception):
    """Like the library's: has a code, and says what the library says of it."""

    def __init__(self, value: int) -> None:
        super().__init__(ERRORS[value])
        self.value = value


@dataclass
class FakeSlice:
    """A slice of a card with MIG on."""

    uuid: str  # its id
    name: str  # its make
    total: int  # memory in bytes
    reserved: int  # what the driver keeps of it
    used: int  # what is held of it
    instance: int  # its GPU instance
    processes: dict[int, int] = field(default_factory=dict)  # memory of those that compute on it, by pid


@dataclass
class FakeCard:
    """What a card answers; None where it says "not supported"."""

    uuid: str  # its id
    name: str  # its make
    total: int  # memory in bytes
    reserved: int | None  # what the driver keeps of it; None for drivers that do not keep it apart
    used: int  # what is held of it
    utilisation: int | None = 0  # percent of time in which it computed
    memory_utilisation: int | None = 0  # percent of time in which its memory was read or written
    # Memory of those that compute on it, by pid; None where the driver does not say.
    processes: dict[int, int | None] = field(default_factory=dict)
    # Samples of who computed: pid, microseconds, percent.
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    slices: list[FakeSlice | None] | None = None  # None while MIG is off; a None among them is a gap
    uncorrected: int | None = 0  # memory errors that could not be corrected
    remapping_failed: bool = False  # whether a row of its memory could not be replaced
    recovery: int | None = 0  # what its driver asks for; None for drivers that ask for nothing
    fault: int = 0  # the code that all questions about it are answered with; 0 for none


def a100() -> FakeCard:
    """One that trains, on a driver of R570."""
    return FakeCard(
        uuid="GPU-5a6b1f0c-7c1e-0c1d-8f53-0d7a2f6d9c11",
        name="NVIDIA A100-SXM4-40GB",
        total=40960 * MIB,
        reserved=571 * MIB,
        used=3142 * MIB,
        utilisation=87,
        memory_utilisation=41,
        processes={4321: 3130 * MIB},
        samples=[(4321, 1_000_000, 80)],
    )


def h100_in_slices() -> FakeCard:
    """One with MIG on and two slices, where utilisation and who computed are not told."""
    return FakeCard(
        uuid="GPU-c3d1e7aa-32f9-4a52-a2a6-0b8e43a2d9f0",
        name="NVIDIA H100 80GB HBM3",
        total=81559 * MIB,
        reserved=551 * MIB,
        used=1200 * MIB,
        utilisation=None,
        memory_utilisation=None,
        slices=[
            FakeSlice(
                uuid="MIG-7d0a3c11-aaaa-5b77-9d10-000000000001",
                name="NVIDIA H100 80GB HBM3 MIG 3g.40gb",
                total=40448 * MIB,
                reserved=0,
                used=1160 * MIB,
                instance=1,
                processes={77: 1100 * MIB},
            ),
            None,
            FakeSlice(
                uuid="MIG-7d0a3c11-aaaa-5b77-9d10-000000000002",
                name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                total=9984 * MIB,
                reserved=0,
                used=15 * MIB,
                instance=9,
            ),
        ],
    )


def old_card() -> FakeCard:
    """One of a driver that answers only what drivers always answered."""
    return FakeCard(
        uuid="GPU-00000000-1080-0000-0000-000000000000",
        name="NVIDIA GeForce GTX 1080 Ti",
        total=11264 * MIB,
        reserved=None,
        used=20 * MIB,
        uncorrected=None,
        recovery=None,
    )


@dataclass(frozen=True)
class _Handle:
    session: int
    uuid: str


class FakeNvml:
    """Stands in for the module ``pynvml``.

    Args:
        cards: What there is.
        silence: The code that ``nvmlInit`` fails with; 0 for none.
        file: Where to read both again before each call; see :meth:`write`.
    """

    NVMLError = NVMLError

    def __init__(self, *cards: FakeCard, silence: int = 0, file: Path | None = None) -> None:
        self.cards = list(cards)
        self.silence = silence
        self.events: list[tuple[str, int, int]] = []
        self.sessions = 0
        self.is_open = False
        self._file = file

    def write(self, file: Path) -> None:
        """Leave the answers in a file, for an agent of another process."""
        content = {"silence": self.silence, "cards": [asdict(card) for card in self.cards]}
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.replace(file)

    def nvmlInit(self) -> None:
        """Begin a session."""
        self._refresh()
        if self.silence:
            raise NVMLError(self.silence)
        self.sessions += 1
        self.is_open = True

    def nvmlShutdown(self) -> None:
        """End the session; its handles are good for nothing any more."""
        self._check_open()
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        """How many cards there are."""
        self._check_open()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> _Handle:
        """A card."""
        self._check_open()
        card = self.cards[index]
        _check(card)
        return _Handle(self.sessions, card.uuid)

    def nvmlDeviceGetUUID(self, handle: _Handle) -> str:
        """The id of a card or slice."""
        return self._find(handle)[1].uuid

    def nvmlDeviceGetName(self, handle: _Handle) -> str:
        """The make of a card or slice."""
        return self._find(handle)[1].name

    def nvmlDeviceGetMemoryInfo(self, handle: _Handle, version: int | None = None) -> Any:
        """Memory of a card or slice; version 2 keeps the driver's own apart."""
        _, part = self._find(handle)
        if version is None:
            used = part.used + (part.reserved or 0)
            return SimpleNamespace(total=part.total, used=used, free=part.total - used)
        if part.reserved is None:
            raise NVMLError(INVALID_ARGUMENT)
        free = part.total - part.reserved - part.used
        return SimpleNamespace(version=version, total=part.total, reserved=part.reserved, used=part.used, free=free)

    def nvmlDeviceGetUtilizationRates(self, handle: _Handle) -> Any:
        """Of a whole card."""
        card = self._whole(handle)
        return SimpleNamespace(gpu=_told(card.utilisation), memory=_told(card.memory_utilisation))

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: _Handle) -> Sequence[Any]:
        """Who computes on a card or slice."""
        _, part = self._find(handle)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in part.processes.items()]

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: _Handle) -> Sequence[Any]:
        """Who draws on a card: nobody here."""
        self._find(handle)
        return []

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: _Handle) -> Sequence[Any]:
        """Who computes by way of a Multi-Process Service: nobody here."""
        self._find(handle)
        return []

    def nvmlDeviceGetProcessUtilization(self, handle: _Handle, timeStamp: int) -> Sequence[Any]:
        """Samples of who computed, younger than a time."""
        card = self._whole(handle)
        if card.slices is not None:
            raise NVMLError(NOT_SUPPORTED)
        young = [sample for sample in card.samples if sample[1] > timeStamp]
        if not young:
            raise NVMLError(NOT_FOUND)
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=percent) for pid, at, percent in young]

    def nvmlDeviceGetMigMode(self, handle: _Handle) -> Sequence[int]:
        """Whether MIG is on, and whether it will be."""
        card = self._whole(handle)
        if card.uncorrected is None:  # an old one
            raise NVMLError(NOT_SUPPORTED)
        return [int(card.slices is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: _Handle) -> int:
        """How many slices there may be."""
        return 7 if self._whole(handle).slices is not None else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: _Handle, index: int) -> _Handle:
        """A slice."""
        slices = self._whole(handle).slices or []
        found = slices[index] if index < len(slices) else None
        if found is None:
            raise NVMLError(NOT_FOUND)
        return _Handle(self.sessions, found.uuid)

    def nvmlDeviceGetGpuInstanceId(self, handle: _Handle) -> int:
        """The GPU instance of a slice."""
        _, part = self._find(handle)
        if not isinstance(part, FakeSlice):
            raise NVMLError(NOT_SUPPORTED)
        return part.instance

    def nvmlDeviceGetTotalEccErrors(self, handle: _Handle, errorType: int, counterType: int) -> int:
        """Uncorrected errors since the driver was loaded; there are no others here."""
        assert (errorType, counterType) == (1, 0)
        return _told(self._whole(handle).uncorrected)

    def nvmlDeviceGetRemappedRows(self, handle: _Handle) -> Sequence[int]:
        """Rows by corrected and by uncorrected errors, whether some wait for a reset, whether it failed."""
        card = self._whole(handle)
        if card.uncorrected is None:
            raise NVMLError(NOT_SUPPORTED)
        return (0, 0, 0, int(card.remapping_failed))

    def nvmlDeviceGetFieldValues(self, handle: _Handle, fieldIds: Sequence[int]) -> Sequence[Any]:
        """What the driver asks for."""
        assert list(fieldIds) == [230]
        action = self._whole(handle).recovery
        answer = SimpleNamespace(uiVal=action or 0)
        return [SimpleNamespace(nvmlReturn=NOT_SUPPORTED if action is None else 0, value=answer)]

    def nvmlEventSetCreate(self) -> list[str]:
        """A set of cards to hear of."""
        self._check_open()
        return []

    def nvmlEventSetFree(self, eventSet: list[str]) -> None:
        """Hear of none any more."""
        self._check_open()
        eventSet.clear()

    def nvmlDeviceRegisterEvents(self, handle: _Handle, eventTypes: int, eventSet: list[str]) -> None:
        """Hear of a card's errors."""
        card = self._whole(handle)
        if card.uncorrected is None:
            raise NVMLError(NOT_SUPPORTED)
        assert eventTypes == 8
        eventSet.append(card.uuid)

    def nvmlEventSetWait_v2(self, eventSet: list[str], timeoutms: int) -> Any:
        """The next of ``events``: card, GPU instance, Xid."""
        assert timeoutms == 0, "nobody is to wait here"
        self._check_open()
        for index, (card, instance, xid) in enumerate(self.events):
            if card in eventSet:
                del self.events[index]
                device = _Handle(self.sessions, card)
                return SimpleNamespace(device=device, eventType=8, eventData=xid, gpuInstanceId=instance)
        raise NVMLError(TIMEOUT)

    def _check_open(self) -> None:
        if not self.is_open:
            raise NVMLError(UNINITIALIZED)

    def _whole(self, handle: _Handle) -> FakeCard:
        _, part = self._find(handle)
        if not isinstance(part, FakeCard):
            raise NVMLError(NOT_SUPPORTED)
        return part

    def _find(self, handle: _Handle) -> tuple[FakeCard, FakeCard | FakeSlice]:
        self._refresh()
        self._check_open()
        if handle.session != self.sessions:
            raise NVMLError(INVALID_ARGUMENT)
        for card in self.cards:
            parts: list[FakeCard | FakeSlice] = [card, *filter(None, card.slices or [])]
            for part in parts:
                if part.uuid == handle.uuid:
                    _check(card)
                    return card, part
        raise NVMLError(INVALID_ARGUMENT)  # a slice that is gone

    def _refresh(self) -> None:
        if self._file is None:
            return
        content = json.loads(self._file.read_text())
        self.silence, self.cards = content["silence"], [_card(**card) for card in content["cards"]]


def _card(slices: list[dict[str, Any] | None] | None, **attributes: Any) -> FakeCard:
    made = None if slices is None else [None if one is None else FakeSlice(**one) for one in slices]
    card = FakeCard(slices=made, **attributes)
    card.processes = {int(pid): size for pid, size in card.processes.items()}
    return card


def _check(card: FakeCard) -> None:
    if card.fault:
        raise NVMLError(card.fault)


def _told(answer: int | None) -> int:
    if answer is None:
        raise NVMLError(NOT_SUPPORTED)
    return answer
