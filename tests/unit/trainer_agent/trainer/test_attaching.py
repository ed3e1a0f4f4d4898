"""What an attached training script leaves to the end of its interpreter."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tiercel.trainer_agent.trainer import attaching
from tiercel.trainer_agent.trainer.attached import AttachedJob


class ClosingJob:
    """A job that only counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close_at_exit(self) -> None:
        """Count."""
        self.closed += 1


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_at_the_interpreters_end_the_job_is_closed_and_nothing_is_searched_for_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    job = ClosingJob()
    attaching._close_at_exit(cast("AttachedJob", job))

    gc.unfreeze()
    registered[0]()

    assert job.closed == 1
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize(
    ("waited", "used", "on"),
    [
        (59.0, 10.0, True),
        (61.0, 0.06, False),
        (61.0, 0.01, True),  # at its floor it has not dialled yet
        (1799.0, 0.01, True),
        (1801.0, 0.01, False),
    ],
)
def test_a_run_that_gets_hardly_any_cpu_waits_longer_for_its_agent(waited: float, used: float, on: bool) -> None:
    assert attaching.has_patience(waited, used) is on
