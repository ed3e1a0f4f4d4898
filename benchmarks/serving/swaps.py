"""Swaps under load, one after the other: ``python -m benchmarks.serving.swaps``.

A real server, a load process of its own, and swaps between two versions of a small and of a 45 MB model. Every tenth
of the run is followed by a pause without swaps, so that what the machine does by itself can be told from what swaps do.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, RESULTS_HELP, Bar, Json
from benchmarks.serving.bodies import HEADER_LENGTH
from benchmarks.serving.open_loop import request_bytes
from testing import onnx_models
from testing.serving_process import ServingProcess, serving

SWAPS = 1000
CONNECTIONS = 8
PAUSE_SECONDS = 0.03
"""Between two swaps: the old version is drained and freed, which belongs to the swap."""
QUIET_SECONDS = 2.0
"""Without swaps, after each tenth of the run."""
FIRST = 100
MODELS = {"small": (64, 128, 10), "large": (1024, 3072, 2560, 64)}
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Swap:
    """One swap: begin and end in seconds of CLOCK_MONOTONIC, and the server's memory after it, in bytes."""

    begin: float
    end: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the load process noted; see :class:`benchmarks.serving.swap_load.Notes`."""

    ended: Seconds
    took: npt.NDArray[np.float32]
    failures: list[str]


def row_request(features: int) -> bytes:
    """The one request that is asked all the time: a row, as binary data where JSON would be large."""
    row = np.random.default_rng(0).random(features).astype(np.float32)
    tensor: Json = {"name": "x", "datatype": "FP32", "shape": [1, features]}
    if features <= 64:
        body = json.dumps({"inputs": [{**tensor, "data": row.round(4).tolist()}]}).encode()
        headers = {}
    else:
        head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": row.nbytes}}]}).encode()
        body = head + row.tobytes()
        headers = {HEADER_LENGTH: str(len(head))}
    return request_bytes("/v2/models/m/infer", body, headers)


@contextlib.contextmanager
def load_process(server: ServingProcess, features: int, connections: int, folder: Path) -> Iterator[Path]:
    """Load, from its first answer on, while the context lasts; gives the path at which its notes will be."""
    request, notes = folder / "request", folder / "notes.npz"
    request.write_bytes(row_request(features))
    command = [sys.executable, "-m", "benchmarks.serving.swap_load", server.http, str(request), str(notes)]
    process = subprocess.Popen(
        [*command, "--connections", str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()  # however long it takes to start on a busy machine
        yield notes
    finally:
        process.communicate(timeout=60)


def put_version(server: ServingProcess, contents: list[Path], version: int) -> None:
    """Put a version into the repository, by a link, and take away the one before the last."""
    folder = server.repository / "m" / str(version)
    temporary = folder.with_name(f".{version}.new")
    temporary.mkdir()
    os.link(contents[version % 2], temporary / "model.onnx")
    temporary.rename(folder)
    shutil.rmtree(server.repository / "m" / str(version - 2), ignore_errors=True)


def swap_again_and_again(
    server: ServingProcess, contents: list[Path], swaps: int, give_up: float, quiet_seconds: float
) -> list[Swap]:
    """Swap so often, or until the clock says ``give_up``; pause for ``quiet_seconds`` after each tenth."""
    process = psutil.Process(server.process.pid)
    done: list[Swap] = []
    while len(done) < swaps and time.monotonic() < give_up:
        put_version(server, contents, len(done) + 2)
        begin = time.monotonic()
        reply = server.load("m")
        if reply.status != 200:
            raise RuntimeError(f"{reply.error}\n{server.log.read_text()[-4000:]}")
        time.sleep(PAUSE_SECONDS)  # what follows a swap belongs to its window
        done.append(Swap(begin, time.monotonic(), process.memory_info().rss))
        if len(done) % max(1, swaps // 10) == 0:
            time.sleep(quiet_seconds)  # what the windows are compared with
    return done


def read_notes(path: Path) -> Seen:
    """What the load process wrote."""
    with np.load(path, allow_pickle=False) as notes:
        order = np.argsort(notes["ended"], kind="stable")
        return Seen(notes["ended"][order], notes["took"][order], [str(line) for line in notes["failures"]])


def gaps_ms(ended: Seconds, windows: list[tuple[float, float]]) -> Seconds:
    """The longest time without an answer in each window, in milliseconds; it may begin before it and end after it."""
    gaps = np.diff(ended)
    longest = []
    for begin, end in windows:
        first = max(0, int(np.searchsorted(ended, begin)) - 1)
        last = min(len(gaps), int(np.searchsorted(ended, end)) + 1)
        longest.append(float(gaps[first:last].max()) * 1e3 if last > first else (end - begin) * 1e3)
    return np.array(longest)


def quiet_windows(swaps: list[Swap]) -> list[tuple[float, float]]:
    """Windows without swaps, as long as a swap in the middle of the run each."""
    length = float(np.median([swap.end - swap.begin for swap in swaps]))
    windows: list[tuple[float, float]] = []
    for before, after in itertools.pairwise(swaps):
        begin = before.end + 0.2  # what the last swap left to do is done
        while begin + length < after.begin - 0.05:
            windows.append((begin, begin + length))
            begin += length
    return windows


def quantiles(values: Seconds) -> Json:
    """Median, p90, p99 and the largest, in milliseconds."""
    if not len(values):
        return {}
    found = np.quantile(values, [0.5, 0.9, 0.99, 1.0])
    return dict(zip(("p50_ms", "p90_ms", "p99_ms", "max_ms"), (round(float(value), 3) for value in found), strict=True))


def in_windows(ended: Seconds, windows: list[tuple[float, float]]) -> npt.NDArray[np.bool_]:
    """Which answers came in one of the windows."""
    inside = np.zeros(len(ended), np.bool_)
    for begin, end in windows:
        inside[np.searchsorted(ended, begin) : np.searchsorted(ended, end)] = True
    return inside


def figures_of(swaps: list[Swap], seen: Seen) -> Json:
    """What there is to say about one run."""
    swapping = [(swap.begin, swap.end) for swap in swaps]
    quiet = quiet_windows(swaps)
    took = seen.took.astype(np.float64) * 1e3
    inside, outside = took[in_windows(seen.ended, swapping)], took[in_windows(seen.ended, quiet)]
    memory = np.array([swap.resident_bytes for swap in swaps], np.float64)
    plateau = float(np.median(memory[min(FIRST, len(memory)) // 2 : FIRST]))
    end = float(np.median(memory[-max(1, min(FIRST, len(memory)) // 2) :]))
    return {
        "swaps": len(swaps),
        "answers": len(seen.ended),
        "failed": len(seen.failures),
        "failures": seen.failures[:5],
        "load_call_median_ms": round(float(np.median([s.end - s.begin for s in swaps]) - PAUSE_SECONDS) * 1e3, 1),
        "longest_gap_in_swaps": quantiles(gaps_ms(seen.ended, swapping)),
        "longest_gap_without_swaps": quantiles(gaps_ms(seen.ended, quiet)),
        "latency_in_swaps": quantiles(inside),
        "latency_without_swaps": quantiles(outside),
        "p99_ratio": round(float(np.quantile(inside, 0.99) / np.quantile(outside, 0.99)), 3) if len(outside) else None,
        "resident_plateau_bytes": int(plateau),
        "resident_end_bytes": int(end),
        "resident_largest_bytes": int(memory.max()),
        "memory_growth": round(end / plateau - 1, 4),
    }


def measure(name: str, swaps: int, connections: int, seconds: float, quiet_seconds: float = QUIET_SECONDS) -> Json:
    """Swap one of :data:`MODELS` so often, for at most so many seconds; see :func:`swap_again_and_again`."""
    layers = MODELS[name]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        contents = [root / "even.onnx", root / "odd.onnx"]
        for seed, path in enumerate(contents):
            path.write_bytes(onnx_models.mlp(layers, seed=seed))
        onnx_models.put(root / "models", "m", 1, contents[1].read_bytes())
        with serving(root / "models", root) as server:
            with load_process(server, layers[0], connections, root) as notes:
                time.sleep(1.0)  # the load warms up
                swapped = swap_again_and_again(server, contents, swaps, time.monotonic() + seconds, quiet_seconds)
            return {
                "model_bytes": contents[0].stat().st_size,
                "connections": connections,
                **figures_of(swapped, read_notes(notes)),
            }


def bars_of(figures: Json) -> list[Bar]:
    """What each model has to show."""
    return [bar for name, found in figures.items() for bar in _bars_of(name, found)]


def _bars_of(name: str, figures: Json) -> list[Bar]:
    return [
        Bar(f"swaps, {name} model", figures["swaps"], f">= {SWAPS}"),
        Bar(f"failed requests, {name} model", figures["failed"], "== 0"),
        Bar(f"longest gap in a swap, {name} model", figures["longest_gap_in_swaps"].get("max_ms"), "< 10", "ms"),
        Bar(f"p99 in swaps by p99 without, {name} model", figures["p99_ratio"], "<= 1.2"),
        Bar(f"memory at the end above the plateau, {name} model", figures["memory_growth"], "<= 0.05"),
    ]


def main() -> None:
    """Measure, and write ``serving-swaps.json``."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.swaps")
    parser.add_argument("--swaps", type=int, default=SWAPS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=900.0, help="for each model at most")
    parser.add_argument("--sane", action="store_true", help="exit with 1 where a request failed; for a glance in CI")
    parser.add_argument("--results", type=Path, help=RESULTS_HELP)
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    given = parser.parse_args()
    figures = {name: measure(name, given.swaps, given.connections, given.seconds) for name in given.models}
    options = f"--swaps {given.swaps} --connections {given.connections} --seconds {given.seconds:g}"
    command = f"python -m benchmarks.serving.swaps {options}"
    print(json.dumps(figures, indent=2))
    keep_result("serving-swaps", command=command, figures=figures, keep=given.keep, folder=given.results)
    if given.sane and any(found["failed"] or not found["swaps"] for found in figures.values()):
        sys.exit("Error: a request failed, or nothing was swapped.")


if __name__ == "__main__":
    main()
