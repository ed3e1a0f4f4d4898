"""What looking at inputs costs the inference server: ``python -m benchmarks.drift_cost``; CPU, the best of 7 rounds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from random import Random

import numpy as np

from tiercel.serving.accounting.model_statistics import ModelStatistics
from tiercel.serving.drift.watch import ROWS, InputWatch, distances
from tiercel.serving.tensors import BY_NAME, Array, TensorSpec

_NEVER = 1e9


def seconds_of(work: Callable[[], object], times: int) -> float:
    """CPU seconds of one call."""
    found = []
    for _ in range(7):
        begin = time.process_time()
        for _ in itertools.repeat(None, times):
            work()
        found.append((time.process_time() - begin) / times)
    return min(found)


def row_seconds(datatype: str, shape: tuple[int, ...], array: Array) -> float:
    """Of taking one row."""
    watch = InputWatch()
    watch.begin({"x": TensorSpec("x", BY_NAME[datatype], shape)}, 1.0, Random(1), None)
    feeds, most = {"x": array}, ROWS - 1
    return seconds_of(lambda: watch.take(feeds, 0.0), most // 7)


def main() -> None:
    """Print all of it."""
    draw, statistics = np.random.default_rng(1), ModelStatistics()
    asked = seconds_of(lambda: statistics.inputs.due <= _NEVER, 200_000) - seconds_of(lambda: None, 200_000)
    print(f"a run that takes no row: {asked * 1e6:.2f} us")
    kinds: dict[str, tuple[str, tuple[int, ...], Array]] = {
        "4 numbers": ("FP32", (-1, 4), np.zeros((8, 4), np.float32)),
        "512 tokens": ("INT64", (-1, -1), draw.integers(0, 30_000, (2, 512))),
        "an image of 224 x 224 x 3": ("FP32", (-1, 3, 224, 224), draw.random((2, 3, 224, 224), np.float32)),
    }
    for name, (datatype, shape, array) in kinds.items():
        print(f"a row of {name}: {row_seconds(datatype, shape, array) * 1e6:.0f} us")
    for numbers in (4, 32):
        before, after = np.sort(draw.random((ROWS, numbers)), axis=0), draw.random((ROWS, numbers))
        print(f"a look at {numbers} numbers: {seconds_of(partial(distances, before, after), 30) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
