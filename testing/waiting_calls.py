"""Calls that wait for a dispatcher, and what became of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from testing import onnx_models
from tiercel.core.errors import TiercelError
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.dispatch.call import Call
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import Array

LONG = 500_000_000  # steps of a loop: minutes, so it only ends when it is broken off


class Outcome(Call):
    """A call that remembers what became of it."""

    result: asyncio.Future[list[Array] | TiercelError]

    def answer(self, outputs: list[Array], now: float) -> None:
        assert now >= self.begin
        self.result.set_result(outputs)  # raises if it is called twice

    def fail(self, error: TiercelError, now: float) -> None:
        assert now >= self.begin
        self.result.set_result(error)

    async def wait(self) -> list[Array] | TiercelError:
        async with asyncio.timeout(90):
            return await self.result

    async def wait_ended(self) -> None:
        """Until nothing of it is in use any more."""
        self.loaded.retire()
        async with asyncio.timeout(90):
            await self.loaded.wait_drained()


class Stage:
    """A dispatcher with workers of its own, which end with the test."""

    opened: ClassVar[list[Stage]] = []

    def __init__(self, max_pending: int = 10, max_bytes: int = 1000, delay: float = 0.0, threads: int = 1) -> None:
        self.workers = Workers(threads)
        self.dispatcher = Dispatcher(self.workers, max_pending, max_bytes, delay)
        self.opened.append(self)

    def close(self) -> None:
        self.dispatcher.close()
        self.workers.close()

    def submit(
        self,
        session: Session,
        steps: int,
        timeout: float = 30.0,
        size: int = 8,
        account: Account | None = None,
    ) -> Outcome:
        loaded = LoadedVersion("m", 1, session, account)
        begin = time.perf_counter()
        feeds = {"k": np.array(steps)}
        call = Outcome(loaded, session, feeds, ("y",), None, 1, 1, 1, size, begin, begin + timeout)
        return self.put(call)

    def put(self, call: Outcome) -> Outcome:
        call.result = asyncio.get_running_loop().create_future()
        self.dispatcher.submit(call)
        return call


class Plus:
    """Calls of a model that adds one, of as many rows as the test wants."""

    def __init__(self, stage: Stage, batch_rows: int = 8, account: Account | None = None) -> None:
        self.stage = stage
        self.session = Session(onnx_models.plus(1.0))
        self.session.batch_rows = batch_rows
        self.loaded = LoadedVersion("m", 1, self.session, account)

    def call(
        self, value: float, rows: int = 1, timeout: float = 30.0, key: object = "key", priority: int = 0
    ) -> Outcome:
        begin = time.perf_counter()
        feeds = {"x": np.full((rows, 4), value, np.float32)}
        return Outcome(
            self.loaded, self.session, feeds, ("y",), key, self.session.batch_rows, rows, 4 * rows, 16 * rows, begin,
            begin + timeout, priority,
        )  # fmt: skip

    def ask(
        self, value: float, rows: int = 1, timeout: float = 30.0, key: object = "key", priority: int = 0
    ) -> Outcome:
        return self.stage.put(self.call(value, rows, timeout, key, priority))

    def sizes(self) -> dict[int, int]:
        """Runs by rows."""
        return {rows: times.count for rows, times in self.loaded.statistics.batches.items()}


async def values(outcomes: Sequence[Outcome]) -> list[float]:
    results = [await outcome.wait() for outcome in outcomes]
    assert all(isinstance(result, list) for result in results)
    return [float(result[0][0, 0]) for result in results if isinstance(result, list)]
