"""What remembering requests costs the inference server: ``python -m benchmarks.explaining``.

CPU microseconds of a request between the data plane and its answer, in turns of 64 that run together on the event loop,
without an id and with one, in turns (A B A B ...); the best and the median of all rounds. Not part of any goal.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import tracemalloc

import numpy as np

from testing import onnx_models
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.explaining.recent_requests import RecentRequests
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import Checked
from tiercel.serving.rest.template import AnswerFormat, RequestTemplate
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers

ROUNDS = 30
TURNS = 60
TOGETHER = 64
KEPT = 4096


class House:
    """A small model that runs batches on the event loop."""

    def __init__(self) -> None:
        session = Session(onnx_models.plus(1.0))
        session.batch_rows, session.inline_elements = TOGETHER, 1_000_000
        registry = Registry()
        record = registry.record("m")
        self.loaded = LoadedVersion("m", 1, session, record.account)
        record.flip(self.loaded)
        self.recent = RecentRequests(KEPT)
        self.workers = Workers(1)
        self.plane = DataPlane(registry, Dispatcher(self.workers, 256, 1024**2), 30.0, None, self.recent)
        self.checked = Checked(("y",), "key", 1, 4, 16)
        self.template = RequestTemplate((), [], None, 0, None, None, AnswerFormat("", frozenset(), False))
        self.feeds = {"x": np.zeros((1, 4), np.float32)}
        self.number = 0

    async def round(self, *, with_ids: bool) -> float:
        """CPU microseconds of a request."""
        begin = time.process_time()
        for _ in range(TURNS):
            answered: list[object] = []
            for _ in range(TOGETHER):
                self.number += 1
                request_id = f"request-{self.number}" if with_ids else ""
                known, arrived = (self.loaded, self.checked), time.perf_counter()
                self.plane.apply(known, self.template, self.feeds, arrived, answered.append, None, request_id)
            while len(answered) < TOGETHER:  # noqa: ASYNC110 - a turn of the loop is what is measured
                await asyncio.sleep(0)
        return (time.process_time() - begin) / (TURNS * TOGETHER) * 1e6


async def main() -> None:
    """Print both, and what is kept in memory."""
    house = House()
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * ROUNDS):
        took[bool(number % 2)].append(await house.round(with_ids=bool(number % 2)))
    for with_ids, each in took.items():
        print(
            f"{'with' if with_ids else 'without'} id: best {min(each):.2f} us, median {statistics.median(each):.2f} us"
        )
    tracemalloc.start()
    fresh = House()
    before = tracemalloc.take_snapshot()
    while fresh.number < 2 * KEPT:
        await fresh.round(with_ids=True)
    kept = sum(each.size_diff for each in tracemalloc.take_snapshot().compare_to(before, "filename"))
    print(f"kept: {kept / 1e6:.1f} MB for {2 * KEPT} requests")
    house.workers.close()
    fresh.workers.close()


if __name__ == "__main__":
    asyncio.run(main())
