"""When a run begins to train, as far as its agent can tell."""

from __future__ import annotations

from typing import cast

from tiercel.trainer_agent.limits.contract import Usage
from tiercel.trainer_agent.runs.usage import RunUsage
from tiercel.trainer_agent.runtimes.contract import RunHandle


class Handle:
    """A run that has used so much."""

    def __init__(self, cpu_seconds: float) -> None:
        self.cpu_seconds = cpu_seconds

    async def usage(self) -> Usage:
        return Usage(self.cpu_seconds)


def handle(cpu_seconds: float) -> RunHandle:
    return cast("RunHandle", Handle(cpu_seconds))


async def test_what_it_used_is_measured_when_it_says_so_for_the_first_time() -> None:
    usage = RunUsage("job-1", None)
    assert usage.begun_cpu_seconds is None
    assert await usage.begin(handle(2.5))
    assert not await usage.begin(handle(40.0))
    assert usage.begun_cpu_seconds == 2.5


async def test_of_a_run_that_an_earlier_life_of_the_agent_started_nobody_knows() -> None:
    usage = RunUsage("job-1", None, is_earlier=True)
    assert not await usage.begin(handle(40.0))
    assert usage.begun_cpu_seconds is None
