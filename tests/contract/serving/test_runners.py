"""All runners give the numbers and raise the errors of ONNX Runtime's own ``run``; on the CPU, with real sessions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from testing import onnx_models
from tiercel.serving.runtime import runners
from tiercel.serving.runtime.runners import BoundRunner, PlainRunner, Runner, SerialRunner
from tiercel.serving.tensors import Array

MakeRunner = Callable[[ort.InferenceSession], Runner]


class PageableBuffers:
    """Memory like any other."""

    def allocate(self, size: int) -> Array:
        """See :meth:`.Buffers.allocate`."""
        return np.empty(size, np.uint8)

    def free(self, array: Array) -> None:
        """See :meth:`.Buffers.free`; the last reference does it."""


class CountedBuffers(PageableBuffers):
    """Knows which buffers are out, and whether anybody bound anything."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.out = 0

    def allocate(self, size: int) -> Array:
        self.sizes.append(size)
        self.out += 1
        return super().allocate(size)

    def free(self, array: Array) -> None:
        array[:] = 0xFF  # whoever still looks at it sees that
        self.out -= 1


def session_of(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)


def bound(session: ort.InferenceSession) -> Runner:
    return BoundRunner(session, PageableBuffers())


def serial(session: ort.InferenceSession) -> Runner:
    return SerialRunner(bound(session))


@pytest.fixture(params=[PlainRunner, bound, serial])
def make(request: pytest.FixtureRequest) -> MakeRunner:
    kind: MakeRunner = request.param
    return kind


def compress() -> bytes:
    """``y`` is x where c is true: its size is said to be that of x, and is not."""
    return onnx_models.model(
        [helper.make_node("Compress", ["x", "c"], ["y"], axis=0)],
        {"x": (TensorProto.FLOAT, ["n"]), "c": (TensorProto.BOOL, ["n"])},
        {"y": (TensorProto.FLOAT, ["n"])},
    )


def nonzero() -> bytes:
    """The places of x that are not 0: how many depends on the values."""
    return onnx_models.model(
        [helper.make_node("NonZero", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, ["n"])},
        {"y": (TensorProto.INT64, [1, "found"])},
    )


def random(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


CASES: tuple[tuple[str, bytes, Sequence[str], Mapping[str, Array]], ...] = (
    ("rows", onnx_models.mlp(), ["y"], {"x": random(3, 64)}),
    ("not contiguous", onnx_models.mlp(), ["y"], {"x": random(64, 3).T}),
    (
        "several",
        onnx_models.two_in_two_out(),
        ["doubled", "total"],
        {"a": random(2), "b": random(2), "k": np.array(4)},
    ),
    ("one of several", onnx_models.two_in_two_out(), ["total"], {"a": random(2), "b": random(2), "k": np.array(4)}),
    ("no rows", onnx_models.plus(1.0), ["y"], {"x": random(0, 4)}),
    ("found out while it runs", nonzero(), ["y"], {"x": np.array([0, 1, 0, 2], np.float32)}),
    ("nothing found", nonzero(), ["y"], {"x": np.zeros(3, np.float32)}),
    (
        "other than declared",
        compress(),
        ["y"],
        {"x": random(4), "c": np.array([True, False, True, False])},
    ),
    ("strings", onnx_models.identity(TensorProto.STRING), ["y"], {"x": np.array(["é", ""], np.object_)}),
    ("bits", onnx_models.identity(TensorProto.BOOL), ["y"], {"x": np.array([True, False])}),
    ("halves", onnx_models.identity(TensorProto.FLOAT16), ["y"], {"x": random(5).astype(np.float16)}),
    ("large integers", onnx_models.identity(TensorProto.UINT64), ["y"], {"x": np.array([2**64 - 1], np.uint64)}),
    ("the other rows matter", onnx_models.summed(), ["y"], {"x": random(5, 4)}),
)


@pytest.mark.parametrize(("model", "outputs", "feeds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_numbers_are_those_of_onnx_runtime(
    make: MakeRunner, model: bytes, outputs: Sequence[str], feeds: Mapping[str, Array]
) -> None:
    session = session_of(model)
    runner = make(session)
    expected = session.run(outputs, feeds)
    for _ in range(3):  # what one run leaves behind is not in the next one's way
        found = runner.run(outputs, feeds, None)
        assert len(found) == len(outputs)
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


def test_runs_of_different_shapes_and_outputs_follow_each_other(make: MakeRunner) -> None:
    runner = make(session_of(onnx_models.mlp()))
    kept = [(rows, runner.run(["y"], {"x": random(rows, 64)}, None)[0]) for rows in (1, 200, 3, 64, 1)]
    plain = session_of(onnx_models.mlp())
    for rows, found in kept:  # answers stay as they were given, whatever ran since then
        np.testing.assert_allclose(found, plain.run(["y"], {"x": random(rows, 64)})[0], rtol=1e-6, atol=1e-6)


def test_inputs_that_do_not_fit_and_a_model_that_fails_are_told_apart(make: MakeRunner) -> None:
    runner = make(session_of(onnx_models.mlp()))
    with pytest.raises(InvalidArgument, match="invalid dimensions"):
        runner.run(["y"], {"x": random(2, 65)}, None)
    with pytest.raises(InvalidArgument, match="Unexpected input data type"):
        runner.run(["y"], {"x": random(2, 64).astype(np.float64)}, None)
    runner = make(session_of(onnx_models.gather()))
    with pytest.raises(InvalidArgument, match="indices element out of data bounds"):
        runner.run(["y"], {"i": np.array([9])}, None)
    assert runner.run(["y"], {"i": np.array([2])}, None)[0].tolist() == [30]


def test_a_run_is_broken_off_from_outside(make: MakeRunner) -> None:
    runner = make(session_of(onnx_models.mlp()))
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate flag"):
        runner.run(["y"], {"x": random(2, 64)}, options)
    assert runner.run(["y"], {"x": random(2, 64)}, None)[0].shape == (2, 10)


def test_a_closed_runner_lets_its_session_go_and_runs_no_more(make: MakeRunner) -> None:
    session = session_of(onnx_models.mlp())
    runner = make(session)
    runner.run(["y"], {"x": random(2, 64)}, None)
    freed = weakref.ref(session)
    del session
    runner.close()
    assert freed() is None
    with pytest.raises(RuntimeError, match="after it was closed"):
        runner.run(["y"], {"x": random(2, 64)}, None)


def test_a_bound_runner_keeps_one_buffer_and_gives_it_back() -> None:
    buffers = CountedBuffers()
    runner = BoundRunner(session_of(onnx_models.mlp()), buffers)
    for rows in (1, 8, 64, 1, 2000, 3):
        runner.run(["y"], {"x": random(rows, 64)}, None)
        assert buffers.out == 1
    assert len(buffers.sizes) == 2  # one to begin with, one for 2,000 rows
    runner.close()
    assert buffers.out == 0


@pytest.mark.parametrize(
    ("model", "outputs", "feeds"), [case[1:] for case in CASES if case[0] in {"strings", "no rows", "nothing found"}]
)
def test_what_cannot_be_bound_takes_no_buffer(model: bytes, outputs: Sequence[str], feeds: Mapping[str, Array]) -> None:
    buffers = CountedBuffers()
    BoundRunner(session_of(model), buffers).run(outputs, feeds, None)
    assert not buffers.sizes


def test_what_is_too_large_for_a_buffer_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "MAX_BUFFER_BYTES", 1000)
    buffers = CountedBuffers()
    runner = BoundRunner(session_of(onnx_models.mlp()), buffers)
    assert runner.run(["y"], {"x": random(4, 64)}, None)[0].shape == (4, 10)
    assert not buffers.sizes


def test_a_model_that_does_not_keep_to_its_shapes_is_bound_once(caplog: pytest.LogCaptureFixture) -> None:
    buffers = CountedBuffers()
    tries: list[int] = []

    class Counting(BoundRunner):
        def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
            tries.append(len(buffers.sizes))
            return super().run(outputs, feeds, options)

    runner = Counting(session_of(compress()), buffers)
    feeds = {"x": random(4), "c": np.array([True, False, True, False])}
    for _ in range(3):
        assert runner.run(["y"], feeds, None)[0].shape == (2,)
    everything = {"x": random(40_000), "c": np.ones(40_000, np.bool_)}  # would need a larger buffer
    assert runner.run(["y"], everything, None)[0].shape == (40_000,)
    assert tries == [0, 1, 1, 1]
    assert caplog.text.count("run without buffers of its own from now on: Error in execution") == 1
    assert len(buffers.sizes) == 1


def test_one_run_at_a_time_and_its_seconds_are_counted_once() -> None:
    now = 0.0
    inside: list[int] = []
    most: list[int] = []

    class Slow:
        def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
            nonlocal now
            inside.append(1)
            most.append(len(inside))
            now += 0.5
            inside.pop()
            if options == "fail":
                raise ValueError
            return []

        def close(self) -> None:
            pass

    runner = SerialRunner(Slow(), lambda: now)
    threads = [threading.Thread(target=runner.run, args=([], {}, None)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        runner.run([], {}, "fail")
    assert max(most) == 1
    assert runner.take_seconds() == 4.5
    assert runner.take_seconds() == 0.0


def test_seconds_are_told_while_another_run_is_under_way() -> None:
    began, go_on = threading.Event(), threading.Event()

    class Waiting:
        def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
            began.set()
            assert go_on.wait(60)
            return []

        def close(self) -> None:
            pass

    runner = SerialRunner(Waiting())
    thread = threading.Thread(target=runner.run, args=([], {}, None))
    thread.start()
    assert began.wait(60)
    assert runner.take_seconds() == 0.0
    go_on.set()
    thread.join(60)
    assert runner.take_seconds() > 0.0
