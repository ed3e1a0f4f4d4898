"""What NVIDIA's cards answer, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from testing import fake_nvml
from testing.fake_nvml import MIB, FakeCard, FakeNvml, a100, h100_in_slices, old_card
from tiercel.trainer_agent.accelerators.contract import (
    Accelerator,
    AcceleratorReading,
    AcceleratorsUnavailableError,
    ProcessUse,
)
from tiercel.trainer_agent.accelerators.nvidia import REOPEN_SECONDS, NvidiaAccelerators
from tiercel.trainer_agent.accelerators.nvidia_health import XID_SECONDS


@dataclass
class Clock:
    """A clock that is set by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def card() -> FakeCard:
    return a100()


@pytest.fixture
def library(card: FakeCard) -> FakeNvml:
    return FakeNvml(card)


@pytest.fixture
def accelerators(library: FakeNvml, clock: Clock) -> NvidiaAccelerators:
    return NvidiaAccelerators(library, clock=clock)


def only(accelerators: NvidiaAccelerators) -> AcceleratorReading:
    """The reading of the only accelerator."""
    [reading] = accelerators.look()
    return reading


def test_a_whole_card(accelerators: NvidiaAccelerators, card: FakeCard) -> None:
    assert accelerators.listed == (Accelerator(card.uuid, card.name, (40960 - 571) * MIB),)
    reading = only(accelerators)
    assert (reading.utilisation, reading.memory_utilisation) == (0.87, 0.41)
    assert reading.memory_used_bytes == 3142 * MIB
    assert reading.processes == {4321: ProcessUse(3130 * MIB, 0.0)}
    assert not reading.problem


def test_accelerator_time_of_processes_is_added_up(
    accelerators: NvidiaAccelerators, card: FakeCard, clock: Clock
) -> None:
    accelerators.look()
    clock.now += 1.0
    card.samples = [(4321, 2_000_000, 60), (99, 2_000_000, 20)]
    processes = only(accelerators).processes
    assert {pid: use.memory_bytes for pid, use in processes.items()} == {4321: 3130 * MIB, 99: 0}
    seconds = {pid: use.busy_seconds for pid, use in processes.items()}
    assert seconds == {4321: pytest.approx(0.6), 99: pytest.approx(0.2)}, "also of one that has ended already"
    clock.now += 1.0
    assert only(accelerators).processes[4321].busy_seconds == 0.0, "nothing new"


def test_slices_are_accelerators_of_their_own(clock: Clock) -> None:
    accelerators = NvidiaAccelerators(FakeNvml(h100_in_slices()), clock=clock)
    assert [(accelerator.name[-7:], accelerator.memory_bytes // MIB) for accelerator in accelerators.listed] == [
        ("3g.40gb", 40448),
        ("1g.10gb", 9984),
    ]
    large, small = accelerators.look()
    assert (large.utilisation, large.memory_utilisation) == (None, None)
    assert large.processes == {77: ProcessUse(1100 * MIB, None)}
    assert (small.processes, small.memory_used_bytes) == ({}, 15 * MIB)


def test_a_card_that_is_sliced_but_has_no_slice_is_no_accelerator(caplog: pytest.LogCaptureFixture) -> None:
    card = h100_in_slices()
    card.slices = []
    assert NvidiaAccelerators(FakeNvml(card)).listed == ()
    assert "MIG is on and it has no slices" in caplog.text


def test_a_card_that_gets_lost_while_it_is_found_does_not_take_the_others_along(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    lost, sound = a100(), old_card()
    library = FakeNvml(lost, sound)
    create = library.nvmlEventSetCreate

    def create_late() -> list[str]:
        lost.fault = fake_nvml.GPU_IS_LOST
        return create()

    monkeypatch.setattr(library, "nvmlEventSetCreate", create_late)
    accelerators = NvidiaAccelerators(library, clock=clock)
    assert [bool(reading.problem) for reading in accelerators.look()] == [True, False]


def test_a_session_that_cannot_be_ended_properly_is_ended(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise fake_nvml.NVMLError(fake_nvml.GPU_IS_LOST)

    accelerators = NvidiaAccelerators(library)
    monkeypatch.setattr(library, "nvmlEventSetFree", fails)
    accelerators.close()
    assert not library.is_open


def test_an_old_driver_answers_less(clock: Clock) -> None:
    accelerators = NvidiaAccelerators(FakeNvml(old_card()), clock=clock)
    assert accelerators.listed[0].memory_bytes == 11264 * MIB
    assert only(accelerators) == AcceleratorReading("GPU-00000000-1080-0000-0000-000000000000", 0.0, 0.0, 20 * MIB)


@pytest.mark.parametrize("code", sorted(set(fake_nvml.ERRORS) - {fake_nvml.GPU_IS_LOST, fake_nvml.RESET_REQUIRED}))
def test_a_question_without_an_answer_is_no_problem_of_the_accelerator(
    accelerators: NvidiaAccelerators, library: FakeNvml, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def has_none(*_: object) -> None:
        raise fake_nvml.NVMLError(code)

    needed = {"nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"}
    for name in {name for name in dir(library) if name.startswith(("nvmlDeviceGet", "nvmlEventSetWait"))} - needed:
        monkeypatch.setattr(library, name, has_none)
    assert only(accelerators) == AcceleratorReading(a100().uuid, memory_used_bytes=3142 * MIB)


@pytest.mark.parametrize("code", [fake_nvml.UNINITIALIZED, fake_nvml.INVALID_ARGUMENT, 999])
def test_an_accelerator_that_does_not_tell_its_memory_has_a_problem(
    accelerators: NvidiaAccelerators, card: FakeCard, code: int
) -> None:
    card.fault = code
    assert fake_nvml.ERRORS[code] in only(accelerators).problem


def test_memory_of_a_process_that_is_not_told(accelerators: NvidiaAccelerators, card: FakeCard) -> None:
    card.processes = {5: None}
    assert only(accelerators).processes[5].memory_bytes == 0


@pytest.mark.parametrize("silence", [fake_nvml.LIBRARY_NOT_FOUND, fake_nvml.DRIVER_NOT_LOADED])
def test_without_a_driver_there_are_none(silence: int) -> None:
    with pytest.raises(AcceleratorsUnavailableError, match=fake_nvml.ERRORS[silence]):
        NvidiaAccelerators(FakeNvml(silence=silence))


def test_only_those_that_are_named() -> None:
    library = FakeNvml(old_card(), a100())
    assert [accelerator.id for accelerator in NvidiaAccelerators(library, [a100().uuid]).listed] == [a100().uuid]
    with pytest.raises(AcceleratorsUnavailableError, match=f"GPU-x is not there; the driver shows {old_card().uuid}"):
        NvidiaAccelerators(library, ["GPU-x", a100().uuid])
    assert not library.is_open


def test_a_card_that_is_lost_at_first_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    lost = a100()
    lost.fault = fake_nvml.GPU_IS_LOST
    assert [accelerator.id for accelerator in NvidiaAccelerators(FakeNvml(lost, old_card())).listed] == [
        old_card().uuid
    ]
    assert "GPU 0: GPU is lost" in caplog.text


def test_a_card_that_does_not_say_how_much_memory_it_has_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    card = a100()
    card.total = card.reserved = card.used = 0
    assert NvidiaAccelerators(FakeNvml(card)).listed == ()
    assert "how much memory" in caplog.text


def test_memory_errors_are_a_problem_of_that_card_alone(clock: Clock) -> None:
    sound, faulty = old_card(), a100()
    faulty.uncorrected = 3
    accelerators = NvidiaAccelerators(FakeNvml(sound, faulty), clock=clock)
    well, ill = accelerators.look()
    assert not well.problem
    assert ill.problem.startswith("3 memory errors were found that could not be corrected")
    assert ill.utilisation == 0.87
    faulty.uncorrected = 0  # it was reset
    assert not any(reading.problem for reading in accelerators.look())


def test_what_the_driver_asks_for_is_a_problem(accelerators: NvidiaAccelerators, card: FakeCard) -> None:
    card.recovery, card.remapping_failed = 1, True
    problem = only(accelerators).problem
    assert "asks for a reset" in problem
    assert "replace the card" in problem


def test_an_xid_is_a_problem_for_a_while(accelerators: NvidiaAccelerators, library: FakeNvml, clock: Clock) -> None:
    library.events = [(a100().uuid, fake_nvml.ALL_OF_A_CARD, 13), (a100().uuid, fake_nvml.ALL_OF_A_CARD, 119)]
    assert "Xid 119" in only(accelerators).problem
    assert not library.events
    clock.now += XID_SECONDS
    assert not only(accelerators).problem


def test_an_xid_of_one_slice(clock: Clock) -> None:
    card = h100_in_slices()
    library = FakeNvml(card)
    accelerators = NvidiaAccelerators(library, clock=clock)
    library.events = [(card.uuid, 9, 94)]
    large, small = accelerators.look()
    assert not large.problem
    assert "Xid 94" in small.problem


def test_a_flood_of_events_does_not_hold_up_a_look(accelerators: NvidiaAccelerators, library: FakeNvml) -> None:
    library.events = [(a100().uuid, fake_nvml.ALL_OF_A_CARD, 79)] * 1000
    accelerators.look()
    assert len(library.events) > 900


def test_a_card_that_is_lost_during_a_run_is_asked_for_anew_now_and_then(
    accelerators: NvidiaAccelerators, card: FakeCard, library: FakeNvml, clock: Clock
) -> None:
    accelerators.look()
    card.fault = fake_nvml.GPU_IS_LOST
    reading = only(accelerators)
    assert reading == AcceleratorReading(card.uuid, problem=reading.problem)
    assert "restart the machine" in reading.problem
    for _ in range(9):
        clock.now += REOPEN_SECONDS / 10
        assert only(accelerators).problem
    assert library.sessions == 1
    clock.now += REOPEN_SECONDS
    assert "GPU 0: GPU is lost" in only(accelerators).problem
    assert library.sessions == 2
    card.fault = 0
    assert only(accelerators).problem, "not asked again yet"
    clock.now += REOPEN_SECONDS
    assert only(accelerators) == AcceleratorReading(
        card.uuid, 0.87, 0.41, 3142 * MIB, "", {4321: ProcessUse(3130 * MIB, 0.0)}
    )
    clock.now += 10 * REOPEN_SECONDS
    accelerators.look()
    assert library.sessions == 3, "a session that is whole is kept"
    assert len(accelerators.listed) == 1


def test_a_driver_that_goes_away_is_a_problem_of_every_accelerator(
    accelerators: NvidiaAccelerators, card: FakeCard, library: FakeNvml, clock: Clock
) -> None:
    card.fault, library.silence = fake_nvml.RESET_REQUIRED, fake_nvml.DRIVER_NOT_LOADED
    assert "--gpu-reset" in only(accelerators).problem
    clock.now += REOPEN_SECONDS
    assert "Driver Not Loaded" in only(accelerators).problem
    card.fault = library.silence = 0
    clock.now += REOPEN_SECONDS
    assert not only(accelerators).problem


def test_a_slice_that_is_gone_is_a_problem(clock: Clock) -> None:
    card = h100_in_slices()
    accelerators = NvidiaAccelerators(FakeNvml(card), clock=clock)
    assert card.slices is not None
    small = card.slices.pop()
    large, gone = accelerators.look()
    assert not large.problem
    assert gone.problem, "its handle is stale"
    clock.now += REOPEN_SECONDS
    large, gone = accelerators.look()
    assert not large.problem
    assert "does not show the accelerator any more" in gone.problem
    card.slices.append(small)
    clock.now += REOPEN_SECONDS
    assert not any(reading.problem for reading in accelerators.look())
