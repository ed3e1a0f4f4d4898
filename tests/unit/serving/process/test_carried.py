from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tiercel.serving.accounting.delays import Delays, History
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.loading.trial_supervision import CarriedTrial
from tiercel.serving.models.canary.judgement import Comparison, Counts
from tiercel.serving.models.canary.trials import Progress
from tiercel.serving.process import carried
from tiercel.serving.process.carried import Carried

NOW = 1000.0
PROGRESS = Progress(4.5, Counts(90, 1, 0.5), Counts(10, 0, 0.1), Comparison(40, 39, 0, math.inf))
TRIALS = {"m": CarriedTrial(3, CanaryPlan(0.1, max_difference=math.inf, requests=100), PROGRESS)}


def history(answers: int = 3) -> History:
    delays = Delays(NOW - 30)
    for number in range(answers):
        delays.answered(0.001 * (number + 1), NOW - 20 + number)
    delays.failed(NOW - 3)
    return delays.history(NOW)


def written(trials: dict[str, CarriedTrial], delays: dict[str, History]) -> Any:
    return json.loads(json.dumps(carried.write(Carried(trials, delays))))


def test_everything_arrives() -> None:
    found = carried.read(written(TRIALS, {"m": history()}), NOW)
    assert found.trials == TRIALS
    delays = Delays(NOW)
    delays.continue_from(found.delays["m"])
    ten, sixty = delays.windows(NOW)
    assert (ten.answers, ten.failures, sixty.answers, sixty.failures) == (0, 1, 3, 1)


@pytest.mark.parametrize("content", [None, {}, {"format": 2, "trials": {}, "delays": {}}, "nonsense"])
def test_another_release_may_say_nothing_or_something_else(content: object) -> None:
    assert carried.read(content, NOW) == Carried({}, {})


@pytest.mark.parametrize(
    "change",
    [
        {"delays": {"m": {"began": 0}}},
        {"delays": None},
        {"delays": {"m": {"began": 1.0, "ends": 5.0, "touched": 2.0, "slots": []}}},
        {
            "delays": {
                "m": {
                    "began": 0.0,
                    "ends": NOW + 1,
                    "touched": NOW,
                    "slots": [{"counts": [[9999], [1]], "on_time": 0, "failures": 0}],
                }
            }
        },
    ],
)
def test_what_makes_no_sense_is_left_out_and_the_rest_is_taken(
    change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    found = carried.read(written(TRIALS, {}) | change, NOW)
    assert (found.trials, found.delays) == (TRIALS, {})
    assert "were left out" in caplog.text


def test_it_stays_within_what_a_line_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    one = history()
    monkeypatch.setattr(carried, "_MAX_BYTES", len(json.dumps(written({}, {"m": one})["delays"]["m"])) + 10)
    later = Delays(NOW - 30)
    later.answered(0.001, NOW - 1)
    assert set(written({}, {"older": one, "newer": later.history(NOW)})["delays"]) == {"newer"}
