"""Containers that the engine does not remove at once: no run's end may take the agent along."""

from __future__ import annotations

from typing import Any, cast

import aiohttp
import pytest
from aiodocker import DockerError

from tiercel.trainer_agent.limits.cpu_priority import KERNEL_DEFAULT, RunPriority
from tiercel.trainer_agent.runtimes.containers import run as container_run
from tiercel.trainer_agent.runtimes.containers.run import DockerRun


class FakeContainer:
    """A container whose engine fails as often as it is told to."""

    id = "0123456789abcdef"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    async def delete(self, **_: object) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_run, "_RETRY_SECONDS", 0.0)


def run_of(container: FakeContainer) -> DockerRun:
    return DockerRun(cast("Any", None), cast("Any", container), None, RunPriority(KERNEL_DEFAULT, 1.0))


def refusal() -> DockerError:
    return DockerError(500, "device or resource busy")


async def test_an_engine_that_is_away_is_waited_for() -> None:
    container = FakeContainer(aiohttp.ClientConnectionError("gone"), TimeoutError(), refusal())
    run = run_of(container)
    await run.close()
    await run.close()
    assert container.asked == 4


async def test_an_engine_that_refuses_again_and_again_is_not() -> None:
    container = FakeContainer(*(refusal() for _ in range(100)))
    await run_of(container).close()
    assert container.asked == 10
