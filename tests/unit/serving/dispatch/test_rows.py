from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from testing import onnx_models
from testing.calls import NoteCall, call_of, session, version
from tiercel.core.errors import InferenceFailedError, InvalidRequestError
from tiercel.serving.dispatch.rows import run_calls, run_calls_measured, scattered
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import measured_batching


def test_each_call_gets_its_rows_as_views_of_one_output() -> None:
    calls = [call_of("m", rows=rows, value=float(rows)) for rows in (2, 1, 0, 3)]
    ran = run_calls(session(), calls)
    assert (ran.rows, ran.together) == (6, True)
    outputs = [outcome[0] for outcome in ran.outcomes if isinstance(outcome, list)]
    assert [output.tolist() for output in outputs] == [[[rows + 1.0] * 4] * rows for rows in (2, 1, 0, 3)]
    assert outputs[0].base is outputs[1].base is not None


def test_a_call_by_itself_runs_as_it_is() -> None:
    ran = run_calls_measured(session(), [call_of("m", rows=2, value=4.0)])
    (outcome,) = ran.outcomes
    assert isinstance(outcome, list)
    assert outcome[0].tolist() == [[5.0] * 4] * 2
    assert ran.cpu > 0


def gathering(*indices: int) -> NoteCall:
    feeds = {"i": np.array(indices)}
    return NoteCall(version("m"), Session(onnx_models.gather()), feeds, ("y",), "key", 8, len(indices), 1, 8, 0.0, 1.0)


def test_only_the_call_fails_whose_fault_it_was(caplog: pytest.LogCaptureFixture) -> None:
    model = Session(onnx_models.gather())
    ran = run_calls(model, [gathering(0), gathering(99), gathering(2, 1)])
    assert not ran.together
    good, bad, other = ran.outcomes
    assert isinstance(bad, InvalidRequestError)
    assert isinstance(good, list)
    assert isinstance(other, list)
    assert good[0].tolist() == [10.0]
    assert other[0].tolist() == [30.0, 20.0]
    assert "run again call by call" in caplog.text


def test_a_call_that_was_answered_meanwhile_is_not_run_again() -> None:
    calls = [gathering(0), gathering(99), gathering(1)]
    calls[2].ended = True
    ran = run_calls(Session(onnx_models.gather()), calls)
    assert isinstance(ran.outcomes[0], list)
    assert not isinstance(ran.outcomes[2], list)


def test_of_a_batch_that_nobody_waits_for_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    calls = [call_of("m", value=1), call_of("m", value=2)]
    for call in calls:
        call.feeds = {"x": np.zeros((1, 3), np.float32)}
        call.ended = True
    assert all(isinstance(outcome, InferenceFailedError) for outcome in run_calls(session(), calls).outcomes)
    assert caplog.text == ""


@pytest.mark.parametrize("shape", [(), (2, 3), (4,)])
def test_outputs_of_other_rows_belong_to_nobody(shape: tuple[int, ...]) -> None:
    with pytest.raises(InferenceFailedError, match="does not belong to 3 rows"):
        scattered([np.zeros(shape)], [1, 2])


def test_outputs_with_several_axes_and_several_outputs_are_taken_apart() -> None:
    first, second = np.arange(6).reshape(3, 2), np.arange(3)
    (one, other) = scattered([first, second], [1, 2])
    assert [output.tolist() for output in one] == [[[0, 1]], [0]]
    assert [output.tolist() for output in other] == [[[2, 3], [4, 5]], [1, 2]]


def test_rows_that_stay_apart_are_found_out() -> None:
    found = measured_batching(Session(onnx_models.mlp()), {}, 16)
    assert found.profile is not None
    assert found.profile.rows[0] == 1
    assert found.profile.rows[-1] <= 16
    assert found.elements == 64
    assert found.reason == ""


@pytest.mark.parametrize(
    ("model", "shapes", "rows", "reason"),
    [
        (onnx_models.centred(), {}, 8, "a row of output 'y' depends on the other rows of the batch"),
        (onnx_models.summed(), {}, 8, "the first axis of output 'y' is not free"),
        (onnx_models.two_in_two_out(), {}, 8, "the first axis of input 'k' is not free"),
        (onnx_models.identity(shape=(2, 3)), {}, 8, "the first axis of input 'x' is not free"),
        (onnx_models.identity(), {}, 1, "batches are switched off"),
        (onnx_models.doubled_rows(), {}, 8, "has not a row for each row of the inputs"),
        (onnx_models.out_of_bounds(), {}, 8, "it could not be tried"),
        (onnx_models.identity(shape=("n", "m")), {"x": (1, 5_000_000)}, 8, "too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_that_must_run_calls_one_by_one_say_why(
    model: bytes, shapes: dict[str, tuple[int, ...]], rows: int, reason: str
) -> None:
    found = measured_batching(Session(model), shapes, rows)
    assert found.profile is None
    assert reason in found.reason


def test_strings_and_truth_values_can_be_batched() -> None:
    for kind in (TensorProto.STRING, TensorProto.BOOL, TensorProto.INT64):
        assert measured_batching(Session(onnx_models.identity(kind)), {}, 4).profile is not None
