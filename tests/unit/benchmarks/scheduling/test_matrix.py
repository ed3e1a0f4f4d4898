from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.matrix import (
    ARMS_OF,
    Block,
    Budget,
    Run,
    Step,
    deadline_seconds,
    expected_seconds,
    forget_all_but,
    make_blocks,
    outcomes_in,
    run_blocks,
    schedules_of,
    source_fingerprint,
)
from benchmarks.scheduling.outcome import Origin, RunOutcome
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import SCHEDULES, make_schedule
from tests.support.scheduling_runs import job_outcome, recording, run_outcome

NAMES = ("fair", "fifo", "tradl", "utility")


def blocks_of(*schedules: str, repetitions: int = 2, setting: str = "") -> list[Block]:
    return make_blocks(schedules, repetitions, lambda name: [ARMS[arm] for arm in NAMES], 0, setting)


class Bench:
    """Carries runs out by making up their outcomes."""

    def __init__(self) -> None:
        self.carried_out: list[str] = []
        self.steps: list[Step] = []
        self.now = 0.0
        self.fails_at = ""
        self.origin = Origin("abc", "some processor")

    async def carry_out(self, run: Run) -> RunOutcome:
        name = f"{run.schedule.block} {run.arm.name}"
        if name == self.fails_at:
            raise KeyboardInterrupt
        self.carried_out.append(name)
        self.now += 10.0
        return run_outcome(run.arm.name, schedule=run.schedule.name, repetition=run.schedule.repetition)

    async def run(self, blocks: list[Block], folder: Path, seconds: float | None = None) -> list[RunOutcome]:
        budget = Budget(seconds, lambda: self.now)
        return await run_blocks(
            blocks, folder, self.origin, self.carry_out, lambda run: 10.0, budget, self.steps.append
        )


def test_every_arm_runs_once_in_every_block_in_an_order_of_the_block_s_own() -> None:
    blocks = blocks_of("small", "at-once", repetitions=4)
    assert [block[0].schedule.block for block in blocks[:3]] == ["small-0", "at-once-0", "small-1"]
    assert all(sorted(run.arm.name for run in block) == sorted(NAMES) for block in blocks)
    assert len({tuple(run.arm.name for run in block) for block in blocks}) > 1
    assert blocks == blocks_of("small", "at-once", repetitions=4)


def test_a_schedule_without_arms_is_no_block() -> None:
    blocks = make_blocks(["small", "ten"], 2, lambda name: [ARMS["fair"]] if name == "ten" else [], 0)
    assert [block[0].schedule.block for block in blocks] == ["ten-0", "ten-1"]


async def test_what_was_interrupted_goes_on_where_it_stopped(tmp_path: Path) -> None:
    blocks = blocks_of("small")
    first, second = Bench(), Bench()
    first.fails_at = f"small-1 {blocks[1][2].arm.name}"
    with pytest.raises(KeyboardInterrupt):
        await first.run(blocks, tmp_path)
    outcomes = await second.run(blocks, tmp_path)
    assert len(first.carried_out) == 6
    assert second.carried_out == [f"small-1 {run.arm.name}" for run in blocks[1][2:]]
    assert [outcome.arm for outcome in outcomes] == [run.arm.name for block in blocks for run in block]
    assert [step.again for step in second.steps] == [True] * 6 + [False] * 2


async def test_a_block_that_there_is_no_time_for_is_not_begun(tmp_path: Path) -> None:
    bench = Bench()
    outcomes = await bench.run(blocks_of("small", repetitions=3), tmp_path, seconds=90.0)
    assert {outcome.block for outcome in outcomes} == {"small-0", "small-1"}
    assert len(outcomes) == 8
    assert [step.block for step in bench.steps if step.run is None] == ["small-2"]


async def test_a_run_of_other_code_or_without_an_end_is_run_again(tmp_path: Path) -> None:
    await Bench().run(blocks_of("small", repetitions=1, setting="old"), tmp_path)
    new = blocks_of("small", repetitions=1, setting="new")
    bench = Bench()
    await bench.run(new, tmp_path)
    assert len(bench.carried_out) == len(NAMES)
    run = new[0][0]
    unfinished = run_outcome(run.arm.name, [job_outcome(finished=None)], key=run.key)
    unfinished.write(run.path(tmp_path))
    again = Bench()
    await again.run(new, tmp_path)
    assert again.carried_out == [f"small-0 {run.arm.name}"]


@pytest.mark.parametrize("origin", [Origin("def", "some processor"), Origin("abc", "another")])
async def test_whole_blocks_of_another_commit_or_machine_are_kept_and_parts_of_one_are_run_again(
    tmp_path: Path, origin: Origin
) -> None:
    blocks = blocks_of("small")
    first, second = Bench(), Bench()
    first.fails_at = f"small-1 {blocks[1][2].arm.name}"
    with pytest.raises(KeyboardInterrupt):
        await first.run(blocks, tmp_path)
    second.origin = origin
    outcomes = await second.run(blocks, tmp_path)
    assert second.carried_out == [f"small-1 {run.arm.name}" for run in blocks[1]]
    assert [outcome.origin for outcome in outcomes] == [first.origin] * 4 + [origin] * 4


def test_outcomes_of_another_setting_are_forgotten(tmp_path: Path) -> None:
    for number, setting in enumerate(("process-1", "process-2", "process-2")):
        run_outcome(repetition=number, setting=setting).write(tmp_path / f"{number}.json")
    forget_all_but("process-2", tmp_path)
    assert [outcome.repetition for outcome in outcomes_in(tmp_path)] == [1, 2]
    forget_all_but(None, tmp_path)
    assert outcomes_in(tmp_path) == []


def test_everything_that_decides_what_is_run_is_in_the_key() -> None:
    run = Run(make_schedule("small", 0), ARMS["fair"], "setting")
    others = [
        Run(make_schedule("small", 1), run.arm, run.setting),
        Run(run.schedule, ARMS["fair-slices"], run.setting),
        Run(run.schedule, run.arm, "other"),
        Run(run.schedule, dataclasses.replace(run.arm, options={"a": 1.0}), run.setting),
    ]
    assert len({each.key for each in [run, *others]}) == 5
    assert dataclasses.replace(run, arm=dataclasses.replace(run.arm, about="told otherwise")).key == run.key


def test_what_decides_has_a_fingerprint_whatever_its_comments_say(tmp_path: Path) -> None:
    folder = tmp_path / "broker" / "scheduling" / "utility"
    folder.mkdir(parents=True)
    found = []
    for source in (
        "def f():\n    return 1\n",
        '"""Text."""\ndef f():\n    """More."""\n    return 1  # why\n',
        "def f():\n    return 2\n",
    ):
        (folder / "policy.py").write_text(source)
        (tmp_path / "broker" / "other.py").write_text(source)
        found.append(source_fingerprint(tmp_path))
    assert found[0] == found[1] != found[2]
    assert source_fingerprint() == source_fingerprint() != source_fingerprint(tmp_path / "none")


def test_a_run_is_expected_to_take_as_long_as_its_work_and_longer_with_fewer_cores() -> None:
    schedule = make_schedule("small", 0)
    known = Recordings({(job.kind, 0): recording(job.kind, cpu=60.0) for job in schedule.jobs})
    one, two = (expected_seconds(schedule, known, cores) for cores in (1, 2))
    assert one > two > 90.0
    assert deadline_seconds(schedule, known, 2) > 2 * two
    assert expected_seconds(schedule, Recordings({}), 2) < two


def test_the_quick_form_is_small() -> None:
    assert schedules_of(quick=True) == ("small",)
    assert "small" not in schedules_of(quick=False)
    assert len(ARMS_OF["small"]) == 3


def test_every_schedule_has_arms_that_exist_and_a_baseline() -> None:
    assert set(ARMS_OF) == set(SCHEDULES)
    for arms in ARMS_OF.values():
        assert set(arms) <= set(ARMS)
        assert len(set(arms)) == len(arms)
        assert "fair" in arms
