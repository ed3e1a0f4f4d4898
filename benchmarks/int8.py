"""``make bench-int8``: an int8 model beside the one that it was made of, when more is asked than that one can answer.

A convolutional network for scikit-learn's digits is trained here, and the trainer library makes its int8 model. Both
are timed by the server's own measurement, and the schedulers that ship serve the same made-up arrivals with either
alone and with both, on a simulated clock: what other programs do to this machine meanwhile says nothing then. Quality
is the accuracy of each answer, discounted by its delay, over all requests. Accuracies are of rows that were neither
trained nor calibrated on. The network is the first of a few seeds whose int8 model loses accuracy, but no more than a
job allows by default: where it loses none there is nothing to choose.
"""

from __future__ import annotations

import contextlib
import io
import random
import statistics
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.averages import bootstrap_interval
from benchmarks.qoe.scenarios import JITTER
from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import bars_table, finish, table
from testing.pool.arrivals import SHAPES, Shape, arrivals
from testing.pool.simulation import Pool, alike, simulate
from tiercel.core.cheap_variants import DEFAULT_MAX_LOSS, VariantKind
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import measured_batching
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Profile
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.utility import utility
from tiercel.trainer_agent.trainer.variant_making import make

Json = dict[str, Any]

FP32, INT8 = VariantKind.FP32, VariantKind.INT8
DOCUMENT = ROOT / "docs" / "results.md"

LOADS = (0.5, 0.9, 1.1, 1.3, 1.6, 2.0, 2.6)
"""Requests a second, over what fp32 alone can answer."""
OBJECTIVE = 0.05
BOTH = "both"
_CHANNELS, _DEPTH, _EPOCHS, _SEEDS = 96, 4, 5, 8
_TRAINED, _CALIBRATED = 1300, 128
_REQUESTS = 4000
_DRAWN = 7_000


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Arrivals that are drawn for each load and shape.")] = 20,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure, tell, and write int8.json; exits with 1 where a bar does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        accuracy, profiles = made(Path(folder))
    typer.echo(f"accuracy {accuracy}")
    for profile in profiles:
        typer.echo(
            f"{profile.name}: {profile.seconds[0] * 1e6:.0f} us for a row, {profile.seconds[4] * 1e6:.0f} for 16"
        )
    rows = [served(profiles, load, shape, seeds) for load in LOADS for shape in SHAPES]
    for row in rows:
        typer.echo(line(row))
    figures: Json = {
        "accuracy": accuracy,
        "objective_seconds": OBJECTIVE,
        "seeds": seeds,
        "batches": list(BATCHES),
        "seconds": {profile.name: list(profile.seconds) for profile in profiles},
        "loads": rows,
    }
    finish(
        "int8", command="make bench-int8 BENCH_FLAGS=--keep", figures=figures, keep=keep, section=(DOCUMENT, section_of)
    )


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold."""
    rows: list[Json] = figures["loads"]
    heavy = [row for row in rows if row["load"] > 1]
    steady = [row for row in heavy if row["arrivals"] == "constant"]
    behind = [other for row in rows for other in (FP32, INT8) if row["gains"][other]["interval"][1] < 0]
    return [
        Bar("overload: quality of both less that of fp32 alone, least lower end", least(heavy, FP32), "> 0"),
        Bar("overload, steady: quality of both less that of int8 alone, least lower end", least(steady, INT8), "> 0"),
        Bar("all loads and arrivals: both behind either alone by more than chance", len(behind), "== 0"),
    ]


def section_of(figures: Json, bars: Iterable[Bar]) -> str:
    """What the documentation says of it."""
    models = [
        (name, f"{figures['accuracy'][name]:.4f}", f"{seconds[0] * 1e6:.0f}", f"{seconds[4] * 1e6:.0f}")
        for name, seconds in figures["seconds"].items()
    ]
    rows = []
    for row in figures["loads"]:
        quality, gain = row["quality"], row["gains"][INT8]
        low, high = gain["interval"]
        told = (f"{quality[name]:.4f}" for name in (FP32, INT8, BOTH))
        gained = f"{gain['mean']:+.4f} ({low:+.4f} to {high:+.4f})"
        rows.append((f"{row['load']:g}", row["arrivals"], *told, gained))
    return "\n\n".join(
        (
            table(("model", "accuracy", "a row, us", "16 rows, us"), models),
            bars_table("bar", bars),
            table(("asked, over what fp32 can answer", "arrivals", FP32, INT8, BOTH, "both over int8 alone"), rows),
        )
    )


def least(rows: list[Json], other: str) -> float | None:
    """The least lower end of the intervals of the gain over one alone."""
    return min((row["gains"][other]["interval"][0] for row in rows), default=None)


def served(profiles: tuple[Profile, ...], load: float, shape: Shape, seeds: int) -> Json:
    """Quality at a load, of either alone and of both, over the same arrivals; gains with their 95 % intervals."""
    pool = Pool(alike(profiles, 1), OBJECTIVE, utility("soft"), JITTER)
    slow = profiles[0]
    rate = load * slow.capacity(slow.largest_within(OBJECTIVE))
    warm_up = 8.0 * OBJECTIVE
    quality: dict[str, list[float]] = {FP32: [], INT8: [], BOTH: []}
    part = []
    for seed in range(_DRAWN, _DRAWN + seeds):
        times = arrivals(shape, rate, warm_up + _REQUESTS / rate, 20.0 * OBJECTIVE, random.Random(seed))
        for name in quality:
            scheduler = HeuristicScheduler() if name == BOTH else StaticScheduler(name)
            score = simulate(pool, times, scheduler, random.Random(seed), warm_up)
            quality[name].append(score.mean)
            if name == BOTH:
                part.append(score.rows.get(INT8, 0) / max(1, score.answered))
    gains = {}
    for other in (FP32, INT8):
        each = [ours - theirs for ours, theirs in zip(quality[BOTH], quality[other], strict=True)]
        gains[other] = {"mean": statistics.fmean(each), "interval": list(bootstrap_interval(each))}
    means = {name: statistics.fmean(values) for name, values in quality.items()}
    return {
        "load": load, "arrivals": shape, "rate": round(rate), "quality": means, "gains": gains,
        "int8_part": statistics.fmean(part),
    }  # fmt: skip


def line(row: Json) -> str:
    """A row for people."""
    quality, gains = row["quality"], row["gains"]
    told = "  ".join(f"{name} {quality[name]:.4f}" for name in quality)
    more = "  ".join(
        f"over {name} {gains[name]['mean']:+.4f} [{gains[name]['interval'][0]:+.4f}, {gains[name]['interval'][1]:+.4f}]"
        for name in gains
    )
    return f"{row['load']:g} x {row['arrivals']:10}  {told}  {more}  int8 {row['int8_part']:.2f}"


def made(place: Path) -> tuple[Json, tuple[Profile, ...]]:
    """The two models' accuracies and profiles, the most accurate first."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    files = {FP32: place / "fp32.onnx", INT8: place / "int8.onnx"}
    found: Json = {}
    for seed in range(_SEEDS):
        scratch = place / f"scratch-{seed}"
        scratch.mkdir()
        train(images[:_TRAINED], labels[:_TRAINED], files[FP32], seed)
        make(INT8, files[FP32], files[INT8], {"images": images[:_CALIBRATED]}, scratch)
        found = {name: accuracy_of(path, images[_TRAINED:], labels[_TRAINED:]) for name, path in files.items()}
        found["seed"] = seed
        if 0 < found[FP32] - found[INT8] <= DEFAULT_MAX_LOSS:
            break
    profiles = []
    for name, path in files.items():
        measured = measured_batching(Session(str(path)), {}, BATCHES[-1]).profile
        if measured is None:
            raise RuntimeError(f"{name} could not be measured")
        rising = np.maximum.accumulate([measured.estimate(batch) for batch in BATCHES])
        profiles.append(Profile(name, found[name], tuple(rising.tolist())))
    return found, tuple(profiles)


def train(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], path: Path, seed: int) -> None:
    """Train the network for a few epochs and write it as ONNX."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 8))]
    for index in range(_DEPTH):
        layers += [nn.Conv2d(_CHANNELS if index else 1, _CHANNELS, 3, padding=1), nn.ReLU()]
    network = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * _CHANNELS, 10))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(_EPOCHS):
        for rows in torch.split(torch.randperm(len(x)), 50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            network.eval(), (x[:1],), str(path), dynamo=False, opset_version=17, input_names=["images"],
            output_names=["scores"], dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
        )  # fmt: skip


def accuracy_of(path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    """Fraction of rows that a model answers rightly."""
    (scores,) = Session(str(path)).run(["scores"], {"images": images})
    return float((scores.argmax(1) == labels).mean())


if __name__ == "__main__":
    typer.run(main)
