"""A dispatcher with all that is asked through it: a model, and an endpoint with variants."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from testing import onnx_models
from testing.until import until
from tiercel.core.errors import TiercelError
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.call import Call
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants.endpoints import Endpoints
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import InferRequest, InferResult, InputTensor
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import BY_NAME

MODEL, ENDPOINT = "model", "endpoint"
LONG = 500_000_000  # steps of a loop: minutes, so it only ends when it is broken off
STEPS = 2_000  # a millisecond or so
MOST = 6
MOST_BYTES = 1000


class Asked:
    """A request and what came of it."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.answers: list[InferResult | TiercelError] = []

    async def answer(self) -> InferResult | TiercelError:
        await until(lambda: self.answers)
        (answer,) = self.answers
        return answer

    async def variant(self) -> object:
        """Who answered."""
        answer = await self.answer()
        assert isinstance(answer, InferResult), answer
        assert answer.parameters is not None
        return answer.parameters["variant"]

    def cancel(self) -> None:
        assert self.call is not None
        self.call.cancel()


async def expect(kind: type[InferResult | TiercelError], asked: Iterable[Asked]) -> None:
    """All of them are answered so."""
    for each in asked:
        answer = await each.answer()
        assert isinstance(answer, kind), answer


class House:
    """A model, and an endpoint with variants ``small`` and ``large``; all of them count as far as they are asked to."""

    def __init__(self, root: Path, threads: int = 1) -> None:
        self.root = root
        self.registry = Registry()
        self.registry.ready = True
        self.workers = Workers(threads)
        self.dispatcher = Dispatcher(self.workers, MOST, MOST_BYTES)
        self.endpoints = Endpoints(root, self.registry, self.dispatcher, 30.0)
        self.plane = DataPlane(self.registry, self.dispatcher, 30.0, self.endpoints)
        for name in (MODEL, "other", "small", "large"):
            self.put(name, onnx_models.counting_loop())

    def put(self, name: str, content: bytes, version: int = 1) -> LoadedVersion:
        record = self.registry.record(name)
        loaded = LoadedVersion(name, version, Session(content), record.account, record.statistics_of(version))
        record.flip(loaded)
        return loaded

    async def configure(self, objective: float = 60.0, scheduler: str = "heuristic") -> None:
        variants = [{"name": "small", "accuracy": 0.8}, {"name": "large", "accuracy": 0.9}]
        content = {"variants": variants, "objective_seconds": objective, "scheduler": scheduler}
        (self.root / ENDPOINT).mkdir(exist_ok=True)
        (self.root / ENDPOINT / "variants.json").write_text(json.dumps(content))
        assert await self.endpoints.load(ENDPOINT)

    def account(self, name: str) -> Account:
        return self.registry.record(name).account

    def waiting(self, name: str) -> int:
        count = self.account(name).as_json(time.perf_counter())["waiting"]
        assert isinstance(count, int)
        return count

    def ask(self, name: str, steps: int = 1, timeout: float | None = None, minimum: float | None = None) -> Asked:
        tensor = InputTensor("k", BY_NAME["INT64"], np.array(steps))
        return self.send(InferRequest(name, "", [tensor], timeout=timeout, minimum_accuracy=minimum))

    def send(self, request: InferRequest) -> Asked:
        asked = Asked()
        asked.call = self.plane.submit(request, asked.answers.append)
        return asked

    async def keep_busy(self) -> Callable[[], None]:
        """Somebody else has the only worker, and is the next to have it, until what is returned is called."""
        busy = [self.ask("other", LONG) for _ in range(2)]
        await until(lambda: not self.workers.may_run_ahead)

        def leave() -> None:
            for each in busy:
                each.cancel()

        return leave

    def is_empty(self) -> bool:
        """Whether nothing waits, runs, or is in use."""
        names = (MODEL, "other", "small", "large")
        lives = [record.live for record in map(self.registry.record, names)]
        return (
            self.workers.idle == self.workers.count
            and not self.dispatcher._pending
            and all(live.in_flight == 0 for live in lives if live is not None)
            and all(self.waiting(name) == 0 for name in (*names, ENDPOINT))
        )

    async def wait_empty(self) -> None:
        await until(self.is_empty)
        for record in self.registry.records():
            delays = record.account.delays
            assert record.account.requests == delays.answers + delays.failures, record.name
