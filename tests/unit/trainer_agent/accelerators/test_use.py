"""What a run uses of accelerators, and what the broker is told of them."""

from __future__ import annotations

from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading, ProcessUse
from tiercel.trainer_agent.accelerators.reports import accelerators_to_wire, readings_to_wire
from tiercel.trainer_agent.accelerators.serving_reserve import ServingReserve
from tiercel.trainer_agent.accelerators.use import AcceleratorMeter

MINE = (10, 11)


def look(accelerator: str = "GPU-1", **processes: ProcessUse) -> AcceleratorReading:
    """A reading with processes by ``p10`` and the like."""
    return AcceleratorReading(accelerator, processes={int(pid[1:]): use for pid, use in processes.items()})


def test_nothing_is_known_at_first() -> None:
    meter = AcceleratorMeter()
    assert (meter.seconds, meter.memory_bytes, meter.reported_seconds, meter.sampled_seconds) == (0.0, 0, None, None)


def test_processes_of_others_do_not_count() -> None:
    meter = AcceleratorMeter()
    meter.on_readings([look(p12=ProcessUse(100, 1.0))], MINE)
    assert (meter.seconds, meter.memory_bytes) == (0.0, 0)


def test_what_the_driver_sees_of_all_processes_of_the_run() -> None:
    meter = AcceleratorMeter()
    for _ in range(2):
        meter.on_readings([look(p10=ProcessUse(100, 0.5), p11=ProcessUse(20, 0.25), p12=ProcessUse(7, 0.1))], MINE)
    assert (meter.seconds, meter.memory_bytes) == (1.5, 120)


def test_of_several_accelerators_the_one_that_is_used_most_counts() -> None:
    meter = AcceleratorMeter()
    meter.on_readings([look("GPU-1", p10=ProcessUse(100, 0.5)), look("GPU-2", p10=ProcessUse(70, 0.75))], MINE)
    assert (meter.seconds, meter.memory_bytes) == (0.75, 100)


def test_the_library_is_believed_about_time_and_the_driver_about_memory() -> None:
    meter = AcceleratorMeter()
    meter.on_report(3.0, 50)
    assert (meter.seconds, meter.memory_bytes) == (3.0, 50)
    meter.on_readings([look(p10=ProcessUse(100, 0.5))], MINE)
    assert (meter.seconds, meter.memory_bytes) == (3.0, 100)
    assert (meter.reported_seconds, meter.sampled_seconds) == (3.0, 0.5), "both can be told apart"


def test_a_slice_has_memory_but_no_samples() -> None:
    meter = AcceleratorMeter()
    meter.on_readings([look("MIG-1", p10=ProcessUse(100, None))], MINE)
    assert (meter.seconds, meter.memory_bytes, meter.sampled_seconds) == (0.0, 100, None)


def test_seconds_never_fall_and_memory_that_was_freed_is_gone() -> None:
    meter = AcceleratorMeter()
    meter.on_report(3.0, 50)
    meter.on_report(2.0, 0)
    assert (meter.seconds, meter.memory_bytes) == (3.0, 0)
    meter.on_readings([look(p10=ProcessUse(100, 0.5))], MINE)
    meter.on_readings([look()], ())
    assert meter.memory_bytes == 0
    assert meter.sampled_seconds == 0.5, "also when its processes have ended"


def test_a_hello_has_the_problems_of_now() -> None:
    accelerators = [Accelerator("GPU-1", "One", 5), Accelerator("GPU-2", "Two", 6)]
    first, second = accelerators_to_wire(accelerators, [AcceleratorReading("GPU-2", problem="lost")], ServingReserve())
    assert (first.id, first.name, first.memory_bytes, first.problem) == ("GPU-1", "One", 5, "")
    assert (second.id, second.problem) == ("GPU-2", "lost")


def test_jobs_are_offered_what_serving_leaves() -> None:
    (only,) = accelerators_to_wire([Accelerator("GPU-1", "One", 5)], [], ServingReserve("GPU-1", 2))
    assert only.memory_bytes == 3


def test_what_is_not_known_is_not_told() -> None:
    known, unknown = readings_to_wire(
        [AcceleratorReading("GPU-1", 0.0, 0.5, 7), AcceleratorReading("MIG-1", problem="lost")]
    )
    assert known.HasField("utilisation")
    assert (known.utilisation, known.memory_utilisation, known.memory_used_bytes) == (0.0, 0.5, 7)
    assert not unknown.HasField("utilisation")
    assert not unknown.HasField("memory_utilisation")
    assert unknown.problem == "lost"


def test_what_an_earlier_life_of_the_agent_knew_of_is_counted_on() -> None:
    meter = AcceleratorMeter(5.0)
    assert meter.seconds == 5.0
    meter.on_report(2.0, 100)  # of a report that was on its way
    assert meter.seconds == 5.0
    meter.on_report(6.0, 100)  # the library counts from the beginning of its process
    assert meter.seconds == 6.0
