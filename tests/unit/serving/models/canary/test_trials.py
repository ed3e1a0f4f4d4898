from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from testing import onnx_models
from tiercel.core.errors import CapacityExceededError, InferenceFailedError
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.models.canary.judgement import Outcome
from tiercel.serving.models.canary.trials import Trial
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.runtime.engine import Session


def make_trial() -> Trial:
    old, new = (LoadedVersion("m", version, Session(onnx_models.plus(version))) for version in (1, 2))
    return Trial(CanaryPlan(0.5, requests=10), old, new, ThreadPoolExecutor(1), 0.0)


def test_callers_who_left_and_full_queues_are_no_fault_of_the_new_version() -> None:
    trial = make_trial()
    statistics = trial.new.statistics
    statistics.succeeded(1.0, 0.01, 0.001, requests=10)
    for _ in range(50):
        statistics.canceled(1.0, 0.01)
        statistics.failed(CapacityExceededError("full"), 1.0)
    assert trial.as_json(1.0)["new"]["errors"] == 0
    assert trial.look(1.0)[0] is Outcome.PROMOTED


def test_runs_that_fail_are() -> None:
    trial = make_trial()
    trial.new.statistics.succeeded(1.0, 0.01, 0.001, requests=10)
    trial.new.statistics.failed(InferenceFailedError("broken"), 1.0)
    assert trial.look(1.0)[0] is Outcome.ROLLED_BACK
