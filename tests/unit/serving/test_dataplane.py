from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from testing import onnx_models
from tiercel.core.errors import (
    CapacityExceededError,
    DeadlineExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
)
from tiercel.serving.accounting.accounts import ModelShare
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.models.canary.trials import Trial
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import InferRequest, InputTensor
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.model_settings import ModelSettings
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import BY_NAME

LONG = 500_000_000


class Plane:
    """A data plane with the models that the tests ask."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.ready = True
        for name, content in {
            "plus": onnx_models.plus(1.0),
            "two": onnx_models.two_in_two_out(),
            "loop": onnx_models.counting_loop(),
        }.items():
            record = self.registry.record(name)
            record.flip(LoadedVersion(name, 3, Session(content), record.account))
        self.workers = Workers(1)
        self.executor = Dispatcher(self.workers, 2, 1024)
        self.plane = DataPlane(self.registry, self.executor, 0.5)

    def close(self) -> None:
        self.executor.close()
        self.workers.close()

    async def ask(self, model: str, version: str = "", outputs: Any = (), timeout: Any = None, **inputs: Any) -> Any:
        tensors = [InputTensor(name, kind, value) for name, (kind, value) in inputs.items()]
        return await self.plane.infer(InferRequest(model, version, tensors, list(outputs), timeout))


@pytest.fixture
async def plane() -> Any:
    plane = Plane()
    yield plane
    plane.close()


def f32(*shape: int) -> Any:
    return BY_NAME["FP32"], np.zeros(shape, np.float32)


def i64(value: int) -> Any:
    return BY_NAME["INT64"], np.array(value)


async def test_an_answer_names_model_version_and_outputs(plane: Plane) -> None:
    result = await plane.ask("two", a=f32(2), b=f32(2), k=i64(4))
    assert (result.model, result.version) == ("two", "3")
    assert [output.spec.name for output in result.outputs] == ["total", "doubled"]
    assert int(result.outputs[1].array) == 8


async def test_only_the_outputs_that_are_wanted_are_computed_in_the_order_wanted(plane: Plane) -> None:
    result = await plane.ask("two", outputs=["doubled", "total"], a=f32(0), b=f32(0), k=i64(4))
    assert [output.spec.name for output in result.outputs] == ["doubled", "total"]
    assert [
        output.spec.name for output in (await plane.ask("two", outputs=["total"], a=f32(2), b=f32(2), k=i64(4))).outputs
    ] == ["total"]


def cases() -> Iterator[tuple[str, dict[str, Any], str]]:
    yield "plus", {}, "input 'x' of model 'plus' is missing"
    yield "plus", {"x": f32(1, 4), "z": f32(1)}, "input 'z' is unknown; model 'plus' takes x"
    yield "plus", {"x": f32(1, 3)}, r"input 'x': shape is \[1, 3\], but the model takes \[-1, 4\]"
    yield "plus", {"x": f32(4)}, r"input 'x': shape is \[4\], but the model takes \[-1, 4\]"
    yield "plus", {"x": i64(1)}, "input 'x': datatype is INT64, but the model takes FP32"
    yield "plus", {"x": f32(1, 4), "outputs": ["z"]}, "output 'z' is unknown; the model gives y"
    yield "plus", {"x": f32(1, 4), "outputs": ["y", "y"]}, "outputs names an output twice"
    yield "two", {"a": f32(2), "b": f32(2)}, "input 'k' of model 'two' is missing"


@pytest.mark.parametrize(("model", "arguments", "problem"), list(cases()))
async def test_what_does_not_fit_the_model_is_refused(
    plane: Plane, model: str, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        await plane.ask(model, **arguments)


async def test_an_input_given_twice_is_refused(plane: Plane) -> None:
    tensor = InputTensor("x", *f32(1, 4))
    with pytest.raises(InvalidRequestError, match="given twice"):
        await plane.plane.infer(InferRequest("plus", "", [tensor, tensor]))


def zeros(minimum_accuracy: float) -> InferRequest:
    return InferRequest("plus", "", [InputTensor("x", *f32(1, 4))], minimum_accuracy=minimum_accuracy)


async def test_a_model_that_is_known_to_be_less_accurate_than_wanted_does_not_answer(plane: Plane) -> None:
    record = plane.registry.record("plus")
    assert (await plane.plane.infer(zeros(0.9))).parameters is None  # nobody knows how accurate it is
    measured = Session(onnx_models.plus(1.0))
    measured.accuracy = 0.8
    record.flip(LoadedVersion("plus", 4, measured, record.account))
    assert (await plane.plane.infer(zeros(0.8))).parameters == {"accuracy": 0.8}
    with pytest.raises(InvalidRequestError, match=r"minimum_accuracy is 0\.9, but version 4 of 'plus' has 0\.8"):
        await plane.plane.infer(zeros(0.9))


async def test_who_wants_more_than_the_version_whose_turn_it_is_in_a_trial_has_gets_the_other(plane: Plane) -> None:
    record = plane.registry.record("plus")
    versions: dict[int, LoadedVersion] = {}
    for version, accuracy in ((4, 0.9), (5, 0.7)):
        session = Session(onnx_models.plus(1.0))
        session.accuracy = accuracy
        versions[version] = LoadedVersion("plus", version, session, record.account)
    record.flip(versions[4])
    record.trial = Trial(CanaryPlan(1.0, 60.0), versions[4], versions[5], cast("Any", None), 0.0)
    assert (await plane.plane.infer(zeros(0.5))).version == "5"
    assert (await plane.plane.infer(zeros(0.8))).version == "4"


async def test_other_versions_and_models_are_not_found(plane: Plane) -> None:
    with pytest.raises(NotFoundError, match="version 3 is live"):
        await plane.ask("plus", "2", x=f32(1, 4))
    with pytest.raises(NotFoundError):
        await plane.ask("nobody")


async def test_a_failing_run_is_an_error_of_the_call_and_counted(plane: Plane) -> None:
    with pytest.raises(InferenceFailedError):
        await plane.ask("two", a=f32(2), b=f32(3), k=i64(1))
    await plane.ask("two", a=f32(2), b=f32(2), k=i64(1))
    (statistics,) = Descriptions(plane.registry, 8, 1).statistics("two")["model_stats"]
    assert statistics["inference_stats"]["fail"]["count"] == 1
    assert statistics["inference_stats"]["success"]["count"] == statistics["inference_count"] == 1
    assert statistics["inference_stats"]["compute_infer"]["ns"] > 0


async def test_a_model_may_have_a_timeout_for_those_who_say_none() -> None:
    plane = Plane()
    plane.registry.live("loop").session.apply(ModelSettings(default_timeout=0.01))
    plane.plane = DataPlane(plane.registry, plane.executor, 3600.0)
    with pytest.raises(DeadlineExceededError):
        await plane.ask("loop", k=i64(LONG * 100))
    plane.close()


async def test_the_shorter_of_two_timeouts_holds(plane: Plane) -> None:
    with pytest.raises(DeadlineExceededError, match=r"within 0\.05 seconds"):
        await plane.ask("loop", timeout=0.05, k=i64(LONG))
    with pytest.raises(DeadlineExceededError, match=r"within 0\.5 seconds"):
        await plane.ask("loop", timeout=1000.0, k=i64(LONG))


async def test_too_many_requests_are_refused_and_none_leaks(plane: Plane) -> None:
    waiting = [asyncio.ensure_future(plane.ask("loop", k=i64(LONG))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(CapacityExceededError):
        await plane.ask("loop", k=i64(1))
    waiting[0].cancel()  # a caller that leaves
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, DeadlineExceededError]
    old = plane.registry.record("loop").flip(LoadedVersion("loop", 4, Session(onnx_models.counting_loop())))
    assert old is not None
    async with asyncio.timeout(90):
        await old.wait_drained()
    result = await plane.ask("loop", k=i64(7))
    assert int(result.outputs[0].array) == 7


async def test_an_answer_that_comes_as_its_caller_leaves_is_dropped(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    call = asyncio.ensure_future(plane.ask("plus", x=f32(1, 4)))
    await asyncio.sleep(0)
    call.cancel()
    plane.executor.close()  # answers whoever waits, in the turn of the loop in which the caller leaves
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not caplog.records, "nothing is handed over to nobody"


def test_metadata() -> None:
    plane = Plane()
    assert plane.plane.model_metadata("two", "3")["inputs"][2] == {"name": "k", "datatype": "INT64", "shape": []}
    assert plane.plane.is_model_ready("two")
    assert not plane.plane.is_model_ready("two", "4")
    plane.close()


def line_of(plane: Plane, model: str, since: float = 0.0) -> Any:
    """What is told of a model; None where it is left out."""
    return next((line for line in plane.plane.usage(since)["models"] if line["name"] == model), None)


async def test_delays_count_from_the_arrival_of_the_first_byte(plane: Plane) -> None:
    tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((1, 4), np.float32))
    await plane.plane.infer(InferRequest("plus", "", [tensor], arrived=time.perf_counter() - 100.0))
    line = line_of(plane, "plus")
    assert 100 < line["delay_seconds"] < 160
    assert line["windows"][0]["p50"] == pytest.approx(line["delay_seconds"], rel=0.05)


async def test_what_times_out_or_is_refused_is_not_in_the_objective(plane: Plane) -> None:
    plane.plane.declare_shares({"loop": ModelShare(objective_seconds=1e6), "plus": ModelShare(objective_seconds=1e6)})
    with pytest.raises(DeadlineExceededError):
        await plane.ask("loop", k=i64(LONG), timeout=0.01)
    answers = [asyncio.ensure_future(plane.ask("loop", k=i64(LONG), timeout=0.3)) for _ in range(8)]
    refused = [type(result) for result in await asyncio.gather(*answers, return_exceptions=True)]
    await plane.ask("plus", x=f32(1, 4))
    line = line_of(plane, "loop")
    assert (line["requests"], line["answers"], line["failures"], line["on_time"]) == (9, 0, 9, 0)
    assert CapacityExceededError in refused
    assert line["windows"][0]["in_objective"] == 0.0
    assert line_of(plane, "plus")["windows"][0]["in_objective"] == 1.0


async def test_a_request_that_makes_no_sense_counts_nowhere(plane: Plane) -> None:
    with pytest.raises(InvalidRequestError):
        await plane.ask("plus", z=f32(1))
    line = line_of(plane, "plus")
    assert (line["requests"], line["answers"], line["failures"]) == (0, 0, 0)


async def test_usage_since_leaves_out_models_that_nobody_asked(plane: Plane) -> None:
    await plane.ask("plus", x=f32(1, 4))
    earlier = plane.plane.usage()
    assert {line["name"] for line in earlier["models"]} == {"plus", "two", "loop"}
    await plane.ask("two", a=f32(2), b=f32(2), k=i64(4))
    later = plane.plane.usage(earlier["uptime_seconds"])
    assert [line["name"] for line in later["models"]] == ["two"]
    assert later["loop_lag"][0]["seconds"] > 0


async def test_a_request_behind_a_long_queue_is_refused_at_once_and_counted_once(plane: Plane) -> None:
    account = plane.registry.record("loop").account
    for moment in (0.0, 100.0):  # a row in 100 s
        account.drain.drained(1, moment, backlog=True)
    ahead = asyncio.ensure_future(plane.ask("loop", k=i64(LONG), timeout=0.3))
    behind = asyncio.ensure_future(plane.ask("loop", k=i64(LONG), timeout=0.3))
    with pytest.raises(CapacityExceededError, match="1 requests are waiting already"):
        await behind
    line = line_of(plane, "loop")
    assert (line["requests"], line["failures"]) == (2, 1)
    record = plane.registry.record("loop")
    assert record.live is not None
    assert record.live.statistics.failures["REJECTED"] == 1
    await asyncio.gather(ahead, return_exceptions=True)


async def test_what_is_refused_early_is_refused_all_the_same(plane: Plane) -> None:
    plane.plane.declare_shares({"loop": ModelShare(objective_seconds=1e6)})
    waiting = [asyncio.ensure_future(plane.ask("loop", k=i64(LONG), timeout=0.3)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(CapacityExceededError):
        plane.plane.check_room("loop")
    assert (line_of(plane, "loop")["requests"], line_of(plane, "loop")["failures"]) == (3, 1)
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(NotFoundError):
        plane.plane.check_room("unknown")
    assert line_of(plane, "loop")["failures"] == 3
