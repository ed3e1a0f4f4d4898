from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import pytest

from testing.scheduling import job, reports, tiers
from tiercel.broker.scheduling.forecast.reach import ReachRecord, ReachSettings, judge, record_of
from tiercel.core.jobs import Direction, Observation

SETTINGS = ReachSettings()


def follow(
    values: list[float], *, target: float, direction: Direction = Direction.MAX, wall_per_report: float = 1.0
) -> list[ReachRecord]:
    """The record after each report, judged after every one."""
    record = ReachRecord("j")
    records = []
    seen: list[Observation] = []
    for index, value in enumerate(values, start=1):
        seen.append(Observation(index * wall_per_report, index, value, index * 0.5))
        view = job("j", ladder=tiers(target), observations=tuple(seen), direction=direction)
        record = judge(view, record, SETTINGS)
        records.append(record)
    return records


def saturating(level: float, count: int, *, noise: float = 0.0, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [level - (level - 0.1) * math.exp(-index / 6) + rng.gauss(0, noise) for index in range(count)]


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_a_clear_plateau_below_the_target_puts_it_out_of_reach(noise: float) -> None:
    records = follow(saturating(0.8, 50, noise=noise), target=0.95)
    assert records[-1].unreachable.startswith("tier 1 (target 0.95) looks out of reach: ")
    assert records[-1].possible is not None
    assert 0.79 < records[-1].possible < 0.95


def test_a_loss_that_levels_off_above_its_target_is_out_of_reach() -> None:
    values = [100 + 100 * math.exp(-index / 6) for index in range(50)]
    records = follow(values, target=80.0, direction=Direction.MIN)
    assert "level off near 1" in records[-1].unreachable or "hardly improved since 1" in records[-1].unreachable


def power_law(level: float, count: int, *, noise: float = 0.0, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [level - (level - 0.1) * index**-0.8 + rng.gauss(0, noise) for index in range(1, count + 1)]


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.01])
@pytest.mark.parametrize(("curve", "target"), [(saturating, 0.88), (power_law, 0.85)])
def test_a_target_below_the_plateau_stays_within_reach_until_it_is_reached(
    curve: Callable[..., list[float]], target: float, noise: float
) -> None:
    for seed in range(20):
        values = curve(0.9, 100, noise=noise, seed=seed)
        until = next(index for index, value in enumerate(values) if value >= target)
        assert not any(record.unreachable for record in follow(values[:until], target=target))


def test_steady_progress_towards_a_distant_target_is_within_reach() -> None:
    assert not any(record.unreachable for record in follow([index / 200 for index in range(100)], target=0.9))


def test_nobody_is_judged_before_enough_verdicts_on_fresh_reports() -> None:
    records = follow([0.1] * 40, target=0.9)
    first = next(index for index, record in enumerate(records, start=1) if record.unreachable)
    assert first == SETTINGS.min_reports + (SETTINGS.verdicts - 1) * SETTINGS.fresh_reports


def test_a_starved_job_is_not_judged_again_on_what_it_said_before() -> None:
    view = job("j", observations=reports(*[0.1] * 8))
    record = judge(view, ReachRecord("j"), SETTINGS)
    assert record.streak == 1
    for _ in range(10):
        assert judge(view, record, SETTINGS) == record


def test_time_on_the_wall_does_not_matter() -> None:
    values = [index / 100 for index in range(60)]
    assert follow(values, target=0.9, wall_per_report=1000.0)[-1].unreachable == ""


def test_the_first_real_step_up_brings_a_job_back() -> None:
    records = follow([0.1] * 20 + [0.3], target=0.9)
    assert records[-2].unreachable
    assert records[-1] == ReachRecord("j", judged=(21.0, 21))


def test_a_little_noise_does_not_bring_a_job_back() -> None:
    records = follow([0.1] * 20 + [0.11], target=0.9)
    assert records[-1].unreachable


def test_a_job_comes_back_when_verdict_after_verdict_finds_nothing_against_it() -> None:
    # nothing is known of what was held possible, as after a restart of the broker
    rising = job("j", ladder=tiers(0.9, unreachable=[1]), observations=reports(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1))
    record = record_of(rising, None)
    assert record.unreachable
    for count in (3, 6):
        values = [0.1] * 8 + [0.1 + 0.05 * step for step in range(1, count + 1)]
        record = judge(dataclasses.replace(rising, observations=reports(*values)), record, SETTINGS)
        assert record.unreachable
    values += [0.45, 0.5, 0.55]
    assert judge(dataclasses.replace(rising, observations=reports(*values)), record, SETTINGS).unreachable == ""


def test_a_record_is_void_once_a_tier_was_reached() -> None:
    earlier = ReachRecord("j", reached=0, streak=2, unreachable="words", possible=0.5)
    assert record_of(job("j", ladder=tiers(0.5, 0.9, reached=1)), earlier) == ReachRecord("j", reached=1)
    assert record_of(job("j", ladder=tiers(0.5, 0.9)), earlier) == earlier


def test_a_job_that_reached_everything_is_not_judged() -> None:
    view = job("j", ladder=tiers(0.5, reached=1), observations=reports(*[0.6] * 30))
    record = ReachRecord("j", reached=1)
    assert judge(view, record, SETTINGS) == record
