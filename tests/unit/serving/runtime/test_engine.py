from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from testing import onnx_models
from tiercel.core.errors import ArtefactRefusedError, InferenceFailedError, InvalidRequestError
from tiercel.serving.runtime import engine
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.runtime.providers import Provider
from tiercel.serving.runtime.sessions import Opened, open_on_cpu
from tiercel.serving.tensors import BF16


def test_a_session_knows_its_inputs_and_outputs() -> None:
    session = engine.Session(onnx_models.two_in_two_out())
    assert {name: (spec.data_type.name, spec.shape) for name, spec in session.inputs.items()} == {
        "a": ("FP32", (-1,)),
        "b": ("FP32", (-1,)),
        "k": ("INT64", ()),
    }
    assert list(session.outputs) == ["total", "doubled"]


def test_a_fast_model_may_run_inline_and_a_budget_of_zero_forbids_it() -> None:
    data = onnx_models.plus(1.0)
    assert engine.build_session(data, {}, 1, inline_budget=10.0).inline_elements >= 4
    assert engine.build_session(data, {}, 1, inline_budget=0.0).inline_elements == -1


def test_inline_elements_grow_with_what_is_left_of_the_budget() -> None:
    assert engine.WarmUp(10e-6, 64).inline_elements(100e-6) == 640
    assert engine.WarmUp(99e-6, 64).inline_elements(100e-6) == 64
    assert engine.WarmUp(101e-6, 64).inline_elements(100e-6) == -1
    assert engine.WarmUp(None, 0).inline_elements(100e-6) == -1
    assert engine.WarmUp(1e-9, 64).inline_elements(100e-6) == 64 * 64


@pytest.mark.parametrize(("budget", "inline"), [(100e-6, 2 * 64), (20e-6, -1), (0.0, -1)])
def test_a_warm_up_that_was_slow_by_chance_keeps_no_small_model_off_the_event_loop(budget: float, inline: int) -> None:
    session = engine.Session(onnx_models.mlp((64, 128, 10)))
    session.inline_elements = engine.WarmUp(150e-6, 64).inline_elements(budget)
    session.batch_by(Batching(LatencyProfile((1, 2, 4), (30e-6, 50e-6, 110e-6)), elements=64), budget)
    assert session.inline_elements == inline


def test_a_model_that_fails_on_zeros_is_still_built() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    data = onnx_models.model(
        [node],
        {"x": (TensorProto.FLOAT, ["n"])},
        {"y": (TensorProto.FLOAT, [2, "m"])},
        {"shape": np.array([2, -1])},
    )
    assert engine.build_session(data, {}, 1, 1.0).inline_elements == -1
    assert engine.build_session(data, {"x": [4]}, 1, 1.0).inline_elements >= 4


def test_inputs_too_large_for_a_warm_up_are_not_made() -> None:
    specs = engine.Session(onnx_models.identity()).inputs
    assert engine.synthesised(specs, {"x": [2**40]}) is None


def test_errors_of_a_run_are_told_apart() -> None:
    session = engine.Session(onnx_models.gather())
    with pytest.raises(InvalidRequestError, match="does not take these inputs"):
        session.run(["y"], {"i": np.array([9])})
    two = engine.Session(onnx_models.two_in_two_out())
    with pytest.raises(InferenceFailedError, match="the model failed"):
        two.run(["total"], {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32), "k": np.array(1)})


@pytest.mark.parametrize("content", [b"x", onnx_models.plus(1.0)[:-10], onnx_models.with_custom_operator()])
def test_what_does_not_load_is_refused(content: bytes) -> None:
    with pytest.raises(ArtefactRefusedError, match="ONNX Runtime does not load it"):
        engine.Session(content)


def test_types_the_protocol_cannot_carry_are_refused() -> None:
    data = onnx_models.identity(TensorProto.FLOAT8E4M3FN)
    with pytest.raises(ArtefactRefusedError, match=r"cannot be served|does not load"):
        engine.Session(data)


def test_bfloat16_goes_in_and_comes_out() -> None:
    session = engine.Session(onnx_models.identity(TensorProto.BFLOAT16, ("n", 2)))
    for value in (np.array([[1.5, -2.0]], BF16), np.zeros((0, 2), BF16), np.array([[1, 2], [3, 4]], BF16).T):
        (found,) = session.run(["y"], {"x": value})
        assert found.dtype == BF16
        assert found.tolist() == value.tolist()
    with pytest.raises(InvalidRequestError):
        session.run(["y"], {"x": np.zeros((1, 3), BF16)})


def test_bfloat16_goes_in_beside_strings_where_none_comes_out() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT), helper.make_node("Identity", ["w"], ["v"])]
    inputs: dict[str, tuple[int, onnx_models.Shape]] = {
        "x": (TensorProto.BFLOAT16, ["n"]),
        "w": (TensorProto.STRING, ["n"]),
    }
    session = engine.Session(
        onnx_models.model(nodes, inputs, {"y": (TensorProto.FLOAT, ["n"]), "v": (TensorProto.STRING, ["n"])})
    )
    numbers, words = session.run(["y", "v"], {"x": np.array([1.5], BF16), "w": np.array(["é"], np.object_)})
    assert (numbers.tolist(), words.tolist()) == ([1.5], ["é"])
    nodes[0] = helper.make_node("Identity", ["x"], ["y"])
    both = onnx_models.model(nodes, inputs, {"y": (TensorProto.BFLOAT16, ["n"]), "v": (TensorProto.STRING, ["n"])})
    with pytest.raises(ArtefactRefusedError, match="takes strings and gives BF16"):
        engine.Session(both)


def test_a_closed_session_has_given_up_its_memory_whoever_still_holds_it() -> None:
    opened = open_on_cpu(onnx_models.identity())
    run: Any = opened.runner.run  # ONNX Runtime's own method
    freed = weakref.ref(run.__self__)
    del run
    session = engine.Session(b"", open_session=lambda *_: opened)
    session.close()
    assert freed() is None
    with pytest.raises(InferenceFailedError, match="used after it was closed"):
        session.run(["y"], {"x": np.zeros(1, np.float32)})


class StandInAccelerator:
    """The CPU in the place of an accelerator: what is decided by the provider's name shows."""

    def __call__(self, model: bytes | str, threads: int) -> Opened:
        opened = open_on_cpu(model, threads)
        opened.provider, opened.take_seconds = Provider.CUDA, iter((9.0, 0.25)).__next__
        return opened


def test_a_session_on_an_accelerator_never_runs_on_the_event_loop_and_is_measured_by_the_clock_on_the_wall() -> None:
    session = engine.build_session(onnx_models.mlp(), {}, 1, 10.0, 64, StandInAccelerator())
    assert session.inline_elements == -1
    assert session.batching.profile is not None
    assert session.busy_clock is time.perf_counter
    assert session.take_accelerator_seconds() == 0.25  # warming up is no request's
    assert engine.Session(onnx_models.mlp()).busy_clock is time.thread_time
    assert engine.Session(onnx_models.mlp(), 2).busy_clock is time.perf_counter
    assert engine.Session(onnx_models.mlp()).take_accelerator_seconds() == 0.0


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        (None, engine.WARM_UP_RUNS),
        (Batching(None, "the model has no inputs"), engine.WARM_UP_RUNS),
        (Batching(LatencyProfile((1, 2), (1.0, 1.5)), "", 64), engine.FEW_WARM_UP_RUNS),
    ],
    ids=["nothing", "no times", "times"],
)
def test_a_model_is_measured_by_its_warm_up_unless_its_times_are_known(
    said: Batching | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    warm_up = engine.Session.warm_up

    def noted(session: engine.Session, shapes: Mapping[str, Sequence[int]], runs: int) -> engine.WarmUp:
        asked.append(runs)
        return warm_up(session, shapes, runs)

    monkeypatch.setattr(engine.Session, "warm_up", noted)
    engine.build_session(onnx_models.mlp(), {}, 1, 1.0, 16, said=said)
    assert asked == [runs]
