"""Predictions: which are recorded, what becomes of them, how far off they were, and what that teaches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from testing.jobs import new_job
from tiercel.broker.what_if.calibration import Calibration, calibration, calibrations
from tiercel.broker.what_if.predictions import MOST_OF_A_TIER, MOST_OPEN, accuracies, settled, to_record
from tiercel.core.jobs import Job, JobState
from tiercel.core.predictions import Prediction, PredictionState
from tiercel.core.what_if import JobPrediction, Span, TierPrediction, WhatIf, Whereabouts

AT = 1_800_000_000.0
SPAN = Span(100.0, 80.0, 130.0)


def prediction(tier: int = 1, made_at: float = AT, came: float | None = None, policy: str = "fair") -> Prediction:
    state = PredictionState.OPEN if came is None else PredictionState.CAME
    return Prediction("j1", tier, policy, datetime.fromtimestamp(made_at, UTC), SPAN, SPAN, "alice", state, came)


def answer(*jobs: str, span: Span | None = SPAN) -> WhatIf:
    tiers = (TierPrediction(1, 0.8, span, span, span),)
    return WhatIf(
        "", "fair", jobs=tuple(JobPrediction(each, each, Whereabouts(), Whereabouts(), tiers) for each in jobs)
    )


def recorded(found: WhatIf, made_at: float, earlier: Sequence[Prediction] = ()) -> list[Prediction]:
    return list(to_record(found, made_at, {"j1": "alice"}, {("j1", 1): earlier} if earlier else {}))


def job(state: JobState = JobState.RUNNING, reached: float | None = None) -> Job:
    made = new_job()
    tiers = (replace(made.tiers[0], reached_seconds=reached), *made.tiers[1:])
    return replace(made, submitted_at=AT - 50.0, state=state, tiers=tiers)


def test_of_a_tier_the_first_prediction_is_recorded_and_a_further_one_when_half_its_time_is_over() -> None:
    (first,) = recorded(answer("j1"), AT)
    assert first == prediction()
    assert recorded(answer("j1"), AT + 49.0, [first]) == []
    assert len(recorded(answer("j1"), AT + 50.0, [first])) == 1
    assert recorded(answer("j1"), AT + 1e6, [first] * MOST_OF_A_TIER) == []


def test_what_is_unknown_or_of_nobody_is_not_recorded_nor_more_than_there_is_room_for() -> None:
    assert recorded(answer("j1", span=None), AT) == []
    assert recorded(answer("", "j2"), AT) == []
    full = {(f"k{number}", 1): [prediction()] for number in range(MOST_OPEN)}
    assert list(to_record(answer("j1"), AT, {"j1": "alice"}, full)) == []


@pytest.mark.parametrize(
    ("of", "policy", "state", "came"),
    [
        (job(), "fair", PredictionState.OPEN, None),
        (job(reached=170.0), "fair", PredictionState.CAME, 120.0),
        (job(JobState.COMPLETED, reached=170.0), "fifo", PredictionState.CAME, 120.0),
        (job(JobState.MISSED), "fair", PredictionState.NEVER, None),
        (job(JobState.FAILED), "fair", PredictionState.NEVER, None),
    ],
)
def test_a_prediction_is_settled_when_its_tier_is_reached_or_its_job_over(
    of: Job, policy: str, state: PredictionState, came: float | None
) -> None:
    found = settled(prediction(), of, policy)
    assert found is not None
    assert (found.state, found.came_seconds) == (state, came)


@pytest.mark.parametrize(
    ("of", "policy"),
    [
        (None, "fair"),
        (job(JobState.CANCELLED), "fair"),
        (job(JobState.SUSPENDED), "fair"),
        (job(), "fifo"),
        (job(reached=40.0), "fair"),
    ],
    ids=["unknown", "cancelled", "suspended", "another policy", "reached before"],
)
def test_a_prediction_is_withdrawn_when_somebody_changed_what_it_was_about(of: Job | None, policy: str) -> None:
    assert settled(prediction(), of, policy) is None


def test_errors_are_told_by_policy_and_what_never_came_is_outside_of_the_band() -> None:
    never = replace(prediction(), state=PredictionState.NEVER)
    found = [prediction(came=each) for each in (50.0, 100.0, 125.0)]
    fair, fifo = accuracies([*found, never, prediction(), prediction(came=0.1, policy="fifo")])
    assert (fair.policy, fair.came, fair.never) == ("fair", 3, 1)
    assert fair.median_error == pytest.approx(0.2)
    assert fair.bias == pytest.approx(0.0)
    assert fair.in_band == pytest.approx(0.5)
    assert (fifo.policy, fifo.came, fifo.median_error) == ("fifo", 0, None)


@pytest.mark.parametrize(("bias", "spread"), [(0.0, 0.1), (0.5, 0.6), (-0.4, 0.3)])
def test_bands_that_are_too_narrow_or_beside_it_hold_four_fifths_once_that_was_seen(bias: float, spread: float) -> None:
    source = Random(1)
    times = [100.0 * math.exp(source.gauss(bias, spread)) for _ in range(1000)]
    learnt = calibrations([prediction(came=each) for each in times[:200]])["fair"].told(SPAN)
    held = sum(learnt.low <= each <= learnt.high for each in times[200:]) / 800
    assert held == pytest.approx(0.8, abs=0.07)
    assert learnt.seconds == pytest.approx(100.0 * math.exp(bias), rel=0.1)


def test_the_band_stays_whole_whatever_came() -> None:
    for came in ([], [100.0] * 500, [math.inf] * 500, [0.0] * 500, [math.inf, *[300.0] * 8]):
        for drawn in (SPAN, Span(0.0, 0.0, 0.0), Span(5.0, 5.0, 5.0), Span(1e9, 1.0, 1e9)):
            told = calibration([(drawn, each) for each in came]).told(SPAN)
            assert 0.0 <= told.low <= told.seconds <= told.high < math.inf
    same = Calibration().told(SPAN)
    assert [same.seconds, same.low, same.high] == pytest.approx([100.0, 80.0, 130.0], rel=0.06)


def test_tiers_that_all_come_twice_as_late_are_told_so_however_certain_the_next_forecast_is() -> None:
    late = calibration([(Span(100.0, 99.0, 101.0), 200.0)] * 40)
    for drawn in (Span(100.0, 99.0, 101.0), Span(100.0, 20.0, 500.0)):
        assert late.told(drawn).seconds == pytest.approx(200.0, rel=0.01)
