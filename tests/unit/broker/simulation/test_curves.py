from __future__ import annotations

import math
import random

import pytest

from testing.simulation import steps
from tiercel.broker.scheduling.interface import CurvePoint
from tiercel.broker.simulation.arrivals import AllAtOnce
from tiercel.broker.simulation.curves import Family, FamilyCurve, RecordedCurve, Trajectory
from tiercel.broker.simulation.presets import measured_kinds
from tiercel.broker.simulation.workload import DrawnJobs, Workload
from tiercel.core.jobs import Direction, Tier


@pytest.mark.parametrize(
    ("family", "left"),
    [
        (Family.EXPONENTIAL, math.exp(-2)),
        (Family.HYPERBOLIC, 1 / 3),
        (Family.POWER, 3**-0.5),
        (Family.SIGMOID, (1 / (1 + math.exp(-1))) / (1 / (1 + math.exp(-3)))),
        (Family.STRETCHED, math.exp(-(2**0.5))),
        (Family.STEPPED, 0.3 + 0.7 * math.exp(-2)),
    ],
)
def test_values_by_hand(family: Family, left: float) -> None:
    # Two scales of 5 CPU seconds.
    assert FamilyCurve(family, 0.1, 0.9, 5.0).value(10.0) == pytest.approx(0.9 - 0.8 * left)


@pytest.mark.parametrize("family", Family)
def test_the_work_to_a_target_is_where_the_curve_has_it(family: Family) -> None:
    curve = FamilyCurve(family, 2.0, 0.5, 5.0)
    work = curve.work_to(0.8)
    assert work is not None
    assert curve.value(work) == pytest.approx(0.8)
    assert curve.value(0.0) == pytest.approx(2.0)
    assert curve.work_to(0.5) is None
    assert curve.work_to(0.4) is None
    assert curve.work_to(2.5) == 0.0


def test_a_stepped_curve_seems_to_level_off_and_then_does_not() -> None:
    curve = FamilyCurve(Family.STEPPED, 0.0, 1.0, 1.0, midpoint=6.0)
    assert curve.value(6.0) == pytest.approx(0.7, abs=0.01)
    assert curve.value(8.0) == pytest.approx(1 - 0.3 * math.exp(-2), abs=0.01)


def test_a_sigmoid_starts_slowly() -> None:
    curve = FamilyCurve(Family.SIGMOID, 0.0, 1.0, 1.0, midpoint=4.5)
    steps_up = [curve.value(work + 1.0) - curve.value(float(work)) for work in range(8)]
    assert max(range(8), key=steps_up.__getitem__) == 4


def test_noise_has_its_deviation_and_its_seed() -> None:
    curve = FamilyCurve(Family.EXPONENTIAL, 0.5, 0.5, 1.0)
    noisy = curve.trajectory(5000, 1.0, 0.0, 0.02, random.Random(4))
    assert noisy == curve.trajectory(5000, 1.0, 0.0, 0.02, random.Random(4))
    assert math.sqrt(sum((value - 0.5) ** 2 for value in noisy.values) / 5000) == pytest.approx(0.02, rel=0.05)


def test_a_recording_is_replayed_without_its_start_up() -> None:
    recorded = RecordedCurve((CurvePoint(2.5, 0.3), CurvePoint(4.0, 0.6), CurvePoint(4.5, 0.7)))
    trajectory = recorded.trajectory(2, 99.0, 2.0, 0.5, random.Random(0))
    assert trajectory == Trajectory((0.5, 2.0), (0.3, 0.6))
    assert trajectory.first_reaching(0.6, Direction.MAX) == 1
    assert trajectory.first_reaching(0.3, Direction.MIN) == 0
    assert trajectory.first_reaching(0.7, Direction.MAX) is None


@pytest.mark.parametrize("points", [(), (CurvePoint(2.0, 0.1), CurvePoint(2.0, 0.2))])
def test_a_recording_must_go_on(points: tuple[CurvePoint, ...]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        RecordedCurve(points)


def test_runs_of_a_workload_differ_in_speed_by_the_spread() -> None:
    workload = Workload(
        name="w",
        curve=FamilyCurve(Family.EXPONENTIAL, 0.0, 1.0, 1.0),
        tiers=(Tier(0.5),),
        speed_spread=0.2,
        max_epochs=1,
    )
    logarithms = [math.log(workload.run(random.Random(seed)).work[0]) for seed in range(3000)]
    assert sum(logarithms) / 3000 == pytest.approx(0.0, abs=0.015)
    assert math.sqrt(sum(each**2 for each in logarithms) / 3000) == pytest.approx(0.2, rel=0.05)


def test_each_workload_is_drawn_as_often_as_the_others_in_an_order_of_the_seed() -> None:
    workloads = tuple(steps(0.9, name=name) for name in "abc")
    jobs = DrawnJobs(workloads, 9, AllAtOnce(), feeds=("digits",))
    drawn = [planned.workload.name for planned in jobs.draw(1)]
    assert sorted(drawn) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert drawn == [planned.workload.name for planned in jobs.draw(1)]
    assert drawn != [planned.workload.name for planned in jobs.draw(2)]
    assert [planned.endpoint for planned in jobs.draw(1)] == ["digits"] + [""] * 8


@pytest.mark.parametrize("fields", [{"tiers": ()}, {"epoch_cpu_seconds": 0.0}, {"noise": -1.0}])
def test_workloads_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    sound = {"name": "w", "curve": FamilyCurve(Family.POWER, 0.0, 1.0, 1.0), "tiers": (Tier(0.5),)}
    with pytest.raises(ValueError, match="workload w"):
        Workload(**{**sound, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", measured_kinds(), ids=lambda kind: kind.name)
def test_kinds_need_the_work_that_was_measured(kind: Workload) -> None:
    measured = {
        "logreg": (0.54, 4.33),
        "dmlp": (1.31, 3.07),
        "mlp": (1.86, 5.13),
        "gru": (3.15, 8.33),
        "vae": (3.62, 7.27),
        "scnn": (4.34, 10.67),
        "lcnn": (8.0, 18.27),
    }
    assert isinstance(kind.curve, FamilyCurve)
    works = [kind.curve.work_to(tier.target) for tier in kind.tiers]
    assert works == pytest.approx(measured[kind.name])
    # It is done with tier 2 after four fifths of its budget.
    assert works[1] == pytest.approx(0.8 * kind.max_epochs * kind.epoch_cpu_seconds)


def test_a_hopeless_kind_has_its_second_tier_beyond_its_plateau() -> None:
    *_, hopeless = measured_kinds(hopeless=1)
    assert isinstance(hopeless.curve, FamilyCurve)
    assert hopeless.curve.work_to(hopeless.tiers[0].target) == pytest.approx(3.15)
    assert hopeless.curve.work_to(hopeless.tiers[1].target) is None
