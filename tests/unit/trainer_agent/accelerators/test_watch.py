"""Looking at accelerators whose driver hangs, fails, or is well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.accelerators import watch as watching
from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading
from tiercel.trainer_agent.accelerators.none import NoAccelerators
from tiercel.trainer_agent.accelerators.watch import AcceleratorWatch

ONE = Accelerator("GPU-1", "Made up", 1 << 30)
SOON = 0.05
"""For drivers that never answer: how long is waited for them makes no difference."""


class MadeUp:
    """One accelerator whose driver does as it is told."""

    listed = (ONE,)

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.looks = 0
        self.problem = ""
        self.error: Exception | None = None
        self.closed_by = ""

    def look(self) -> tuple[AcceleratorReading, ...]:
        """Block until it may go on."""
        self.looks += 1
        self.goes_on.wait()
        if self.error is not None:
            raise self.error
        return (AcceleratorReading(ONE.id, problem=self.problem),)

    def close(self) -> None:
        """Remember on which thread."""
        self.closed_by = threading.current_thread().name


@pytest.fixture
async def made_up() -> AsyncIterator[MadeUp]:
    driver = MadeUp()
    yield driver
    driver.goes_on.set()


async def opened(driver: MadeUp, deadline_seconds: float = 60.0) -> AcceleratorWatch:
    """A watch that has looked once."""
    watch = AcceleratorWatch(deadline_seconds)
    await watch.open(lambda: driver)
    return watch


async def test_it_looks_at_once_and_lets_go_on_the_thread_that_looked(made_up: MadeUp) -> None:
    watch = await opened(made_up)
    assert watch.listed == (ONE,)
    assert watch.readings == (AcceleratorReading(ONE.id),)
    await watch.close()
    await watch.close()
    assert made_up.closed_by == "accelerators"


async def test_a_driver_that_hangs_is_a_problem_and_is_asked_nothing_more(made_up: MadeUp) -> None:
    watch = await opened(made_up, SOON)
    made_up.goes_on.clear()
    for _ in range(3):
        await watch.look()
        assert "has not answered" in watch.readings[0].problem
    assert made_up.looks == 2, "the first look, and the one that it hangs in"
    made_up.goes_on.set()
    while watch.readings[0].problem:  # as soon as its answer came
        await watch.look()
    assert made_up.looks == 2
    await watch.look()
    assert made_up.looks == 3
    await watch.close()


async def test_the_agent_can_leave_while_the_driver_hangs(made_up: MadeUp) -> None:
    watch = await opened(made_up, SOON)
    made_up.goes_on.clear()
    await watch.look()
    await watch.close()
    assert not made_up.closed_by
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "accelerators")


async def test_a_driver_that_hangs_at_first_is_none(made_up: MadeUp, caplog: pytest.LogCaptureFixture) -> None:
    goes_on = threading.Event()

    def hangs() -> MadeUp:
        goes_on.wait()
        return made_up

    watch = AcceleratorWatch()
    await watch.open(hangs, SOON)
    goes_on.set()
    assert watch.listed == ()
    await watch.look()
    assert watch.readings == ()
    assert "start the agent again" in caplog.text
    await watch.close()


async def test_a_defect_is_a_problem_and_not_the_end(made_up: MadeUp) -> None:
    watch = await opened(made_up)
    made_up.error = ZeroDivisionError("made up")
    await watch.look()
    assert "ZeroDivisionError" in watch.readings[0].problem
    made_up.error = None
    await watch.look()
    assert not watch.readings[0].problem
    await watch.close()


async def test_a_problem_is_told_once_and_its_end_too(made_up: MadeUp, caplog: pytest.LogCaptureFixture) -> None:
    watch = await opened(made_up)
    with caplog.at_level("INFO"):
        for problem in ("too hot", "too hot", "", ""):
            made_up.problem = problem
            await watch.look()
    assert [record.message for record in caplog.records] == [
        "accelerator GPU-1: too hot",
        "accelerator GPU-1 is well again",
    ]
    await watch.close()


async def test_what_cannot_be_found_as_asked_is_said() -> None:
    def refuses() -> NoAccelerators:
        raise SetupError("Not there.")

    watch = AcceleratorWatch()
    with pytest.raises(SetupError, match=r"Not there\."):
        await watch.open(refuses)
    await watch.close()


async def test_it_tells_of_each_look(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.0)
    watch = await opened(made_up)
    told: list[Sequence[AcceleratorReading]] = []
    enough = asyncio.Event()

    def looked(readings: Sequence[AcceleratorReading]) -> None:
        told.append(readings)
        if len(told) == 3:
            enough.set()

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(watch.run(looked))
        await enough.wait()
    running.cancel()
    assert told[0] == (AcceleratorReading(ONE.id),)
    await watch.close()


async def test_without_accelerators_there_is_nothing_to_look_at() -> None:
    watch = AcceleratorWatch()
    await watch.open(NoAccelerators)
    async with asyncio.timeout(60):
        await watch.run(lambda _: None)
    assert watch.readings == ()
    await watch.close()
