"""A training in a process of its own: it does what it is told, and what becomes of it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_check.frame import CheckError
from benchmarks.gpu_check.processes import TrainerProcess
from benchmarks.gpu_check.workloads import Workload

TINY = Workload(width=2, batch_size=4)


async def test_a_training_that_cannot_begin_is_told_by_its_last_words(tmp_path: Path) -> None:
    async with TrainerProcess("abacus", TINY, tmp_path / "log") as training:
        with pytest.raises(CheckError, match=r"a training ended: .*abacus"):
            await training.ready()


async def test_it_trains_from_the_moment_on_at_which_it_may(tmp_path: Path) -> None:
    async with TrainerProcess("cpu", TINY, tmp_path / "log") as training:
        await training.ready()
        since = await training.allow(1.0)
        got = await training.measure(0.1)
        assert got.steps_per_second > 0
        assert 0 < got.share <= 1
        assert [done for done in training.told if done.steps and done.at < since] == []
        with pytest.raises(CheckError, match="no three steps"):
            training.got(since - 60.0, since)
