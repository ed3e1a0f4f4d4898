"""What the data plane notes of requests on their way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from testing import onnx_models
from testing.until import until
from tiercel.core.errors import TiercelError
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.explaining.recent_requests import RecentRequests, Remembered
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import InferRequest, InferResult, InputTensor
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import BY_NAME


class House:
    """A model whose requests run together, and what is remembered of them."""

    def __init__(self, inline: bool) -> None:
        registry = Registry()
        registry.ready = True
        session = Session(onnx_models.plus(1.0))
        session.batching, session.batch_rows = Batching(LatencyProfile((1, 2, 4, 8), (1e-5,) * 4), "", 4), 8
        session.inline_elements = 1_000 if inline else -1
        record = registry.record("m")
        record.flip(LoadedVersion("m", 3, session, record.account))
        self.workers = Workers(1)
        self.recent = RecentRequests(64)
        self.dispatcher = Dispatcher(self.workers, 256, 1024 * 1024)
        self.plane = DataPlane(registry, self.dispatcher, 30.0, None, self.recent)
        self.answers: list[InferResult | TiercelError] = []

    def ask(self, request_id: str, rows: int = 1) -> None:
        tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((rows, 4), np.float32))
        self.plane.submit(InferRequest("m", "", [tensor], id=request_id), self.answers.append)

    def found(self, request_id: str) -> Remembered:
        one = self.recent.find("m", request_id)
        assert isinstance(one, Remembered)
        return one


@pytest.fixture(params=[True, False], ids=["on the event loop", "on a worker"])
async def house(request: pytest.FixtureRequest) -> Iterator[House]:  # type: ignore[misc]
    made = House(request.param)
    yield made
    made.dispatcher.close()
    made.workers.close()


async def test_requests_that_ran_together_say_how_many_and_at_which_place(house: House) -> None:
    house.ask("a", rows=2)
    house.ask("")  # takes a place, and is not remembered
    house.ask("b", rows=3)
    await until(lambda: len(house.answers) == 3)
    a, b = house.found("a"), house.found("b")
    assert a.run is not None
    assert a.run == b.run
    assert (a.run.requests, a.run.rows) == (3, 6)
    assert [(each.place, each.rows) for each in (a, b)] == [(1, 2), (3, 3)]
    for each in (a, b):
        assert each.run is not None
        assert 0 < each.arrived <= each.begin <= each.run.began <= each.encode <= each.end
        assert all(seconds >= 0 for seconds in each.steps().values())


async def test_what_waited_for_no_turn_any_more_says_why_it_was_not_answered(house: House) -> None:
    house.ask("left")
    house.dispatcher.close()
    await until(lambda: house.answers)
    left = house.found("left")
    assert "the server is leaving" in left.error
    assert left.run is None
