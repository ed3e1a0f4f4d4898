"""Training again by itself, over ten made-up days: ``make bench-retraining``; a minute.

Points come, one in 20 s with its truth, and lie on two sides of a plane; some are noise. The plane turns, or more
becomes noise, or nothing happens, or for two days applications say the opposite of what is true. A model is fitted to
the newest 2,000 points and measured on the newest fifth of them; that takes ten minutes of one core. When to train, and
what answers, is decided by the broker's own steps (``broker/lifecycle``). Beside it: never; every eight hours, as often
as the budget allows; evenly spread, as often as ours trained in that very run; and at once, whenever the alarm that
begins ours is there and the same budget has room, without a pause. These take whatever they train.

What counts is answers that are right and in time. A training beside which the endpoint has its share takes one of the
node's two cores; the one at once takes both, without shares, and is done in half the time.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import typer

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, ROOT, Bar, Json
from benchmarks.sections import bars_table, table, write_section
from tiercel.broker.lifecycle import job as job_machine
from tiercel.broker.lifecycle import promises, retraining, versions
from tiercel.broker.simulation.endpoints import open_delay, part_within
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.feedback import AccuracyInUse, VersionFeedback
from tiercel.core.jobs import Direction, Job, JobSpec, JobState, Tier
from tiercel.core.retraining import Retrain, Retraining, RetrainingState
from tiercel.core.runs import EarlierRuns

DOCUMENT = ROOT / "docs" / "retraining.md"
DAYS: Final = 10
DAY: Final = 86_400.0
LOOK: Final = 300.0
ROWS: Final = 15  # in that time
TRAINING: Final = 600.0  # seconds, of one core
NEWEST: Final = 2_000
WINDOW: Final = 1_000
FEATURES: Final = 8
TERMS: Final = Retrain(budget_core_hours=3 * TRAINING / 3600)
SPEC: Final = JobSpec("side", "side", "accuracy", Direction.MAX, (Tier(0.85),), module="made.up", retrain=TERMS)
WORLDS: Final = {
    "still": "nothing happens",
    "sudden": "the plane turns three times",
    "gradual": "it turns by a right angle, slowly",
    "harder": "it turns, and a quarter becomes noise",
    "lies": "two days of wrong labels",
}
RIVALS: Final = ("never", "every 8 h", "evenly spread", "at once")
BEFORE: Final = -(-NEWEST // ROWS)  # looks whose points lie before the first day

# The node's cores; what an answer takes of one, seconds, how many are wanted a second, and how long they may take.
CORES: Final = 2
WORK: Final = 0.05
RATE: Final = 10.0
OBJECTIVE: Final = 0.25
# Threads that are ready to run where nobody has a share: the kernel gives each as much as any other.
SERVING_THREADS: Final = 2
TRAINING_THREADS: Final = 4

Floats = npt.NDArray[np.float64]
Model = Floats  # weights, of [features]


@dataclass(frozen=True, slots=True)
class Rows:
    """Points of one look: [rows, features], on which side they were (1 or -1), and what applications say of that."""

    x: Floats
    truth: Floats
    said: Floats


def world_of(kind: str, seed: int) -> list[Rows]:
    """All that comes, look by look; the first 2,000 points are of before."""
    draw = np.random.default_rng(seed)
    plane, other = np.linalg.qr(draw.standard_normal((FEATURES, 2)))[0].T
    turns = sorted(draw.uniform(0.1, 0.9, 3) * DAYS * DAY)
    found = []
    for number in range(-(-NEWEST // ROWS), round(DAYS * DAY / LOOK)):
        at = number * LOOK
        if kind in {"sudden", "harder"} and turns and at >= turns[0] and number >= 0:
            turns = turns[1:] if kind == "sudden" else []
            plane, other = other, -plane
        angle = max(0.0, at) / (DAYS * DAY) * np.pi / 2 if kind == "gradual" else 0.0
        noise = 0.25 if kind == "harder" and not turns else 0.05
        x = draw.standard_normal((ROWS, FEATURES))
        truth = np.sign(x @ (np.cos(angle) * plane + np.sin(angle) * other))
        truth *= np.where(draw.random(ROWS) < noise, -1.0, 1.0)
        is_lie = kind == "lies" and 3 * DAY <= at < 5 * DAY
        found.append(Rows(x, truth, -truth if is_lie else truth))
    return found


def fitted(newest: Sequence[Rows]) -> tuple[Model, float]:
    """A model of the newest points, and its accuracy on the newest fifth of them."""
    x, y = np.concatenate([each.x for each in newest]), np.concatenate([each.truth for each in newest])
    cut = len(x) * 4 // 5
    weights = np.linalg.solve(x[:cut].T @ x[:cut] + np.eye(FEATURES), x[:cut].T @ y[:cut])
    return weights, float((np.sign(x[cut:] @ weights) == y[cut:]).mean())


def is_right(model: Model, x: Floats, truth: Floats) -> npt.NDArray[np.bool_]:
    """Which points a model knows the side of."""
    right: npt.NDArray[np.bool_] = np.sign(x @ model) == truth
    return right


def in_time(cores: float) -> float:
    """Which part of the endpoint's answers comes in time while it may use so many cores."""
    return part_within(OBJECTIVE, WORK / min(1.0, cores), open_delay(WORK, RATE, cores))


def served(right: Sequence[int], begun: Iterable[float], seconds: float, cores: float) -> float:
    """The part of all answers that were right and in time.

    Args:
        right: How many were right, look by look.
        begun: When trainings began.
        seconds: How long each took.
        cores: What they left to the endpoint.
    """
    part = np.full(len(right), in_time(CORES))
    for at in begun:
        part[round(at / LOOK) : round((at + seconds) / LOOK)] = in_time(cores)
    return float(part @ np.asarray(right)) / (len(right) * ROWS)


def on_schedule(rows: Sequence[Rows], times: Iterable[float]) -> list[int]:
    """How many answers are right, look by look, when models are trained at these times and answer whatever they are."""
    model, _ = fitted(rows[:BEFORE])
    due = sorted(time + TRAINING for time in times)
    right = []
    for number, each in enumerate(rows[BEFORE:]):
        if due and number * LOOK >= due[0]:
            begun = BEFORE + round((due.pop(0) - TRAINING) / LOOK)
            model, _ = fitted(rows[begun - BEFORE : begun])
        right.append(int(is_right(model, each.x, each.truth).sum()))
    return right


def at_once(rows: Sequence[Rows]) -> tuple[list[int], list[float]]:
    """The same when one is trained at each alarm that the budget has room for; and when that was."""
    model, _ = fitted(rows[:BEFORE])
    window: deque[bool] = deque(maxlen=WINDOW)
    begun: list[float] = []
    right, due = [], np.inf
    for number, each in enumerate(rows[BEFORE:]):
        now = number * LOOK
        if now >= due:
            at = BEFORE + round(begun[-1] / LOOK)
            model, _ = fitted(rows[at - BEFORE : at])
            due = np.inf
            window.clear()
        right.append(int(is_right(model, each.x, each.truth).sum()))
        window.extend(is_right(model, each.x, each.said).tolist())
        heard = {1: VersionFeedback(1, len(window), sum(window))}
        in_use: AccuracyInUse | None = promises.in_use_of(1, heard)
        has_room = sum(1 for time in begun if time > now - TERMS.window_seconds) < TERMS.at_most
        if due == np.inf and has_room and in_use is not None and in_use.high < SPEC.tiers[0].target:
            begun.append(now)
            due = now + TRAINING / CORES
    return right, begun


class Broker:
    """What the broker makes of the same."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        self._rows = rows
        model, value = fitted(rows[:BEFORE])
        self._models = {1: model}
        self._heard: dict[int, deque[bool]] = {}
        first, _ = job_machine.create("j0", "alice", SPEC, 0.0)
        self._endpoint = Endpoint("side", "alice", 2)
        self._deliver(first, 1, value, 0.85)
        self.begun: list[float] = []

    def run(self) -> list[int]:
        """How many answers are right, look by look."""
        right = []
        for number, each in enumerate(self._rows[BEFORE:]):
            live = self._endpoint.live[0].version
            model = self._models[live]
            right.append(int(is_right(model, each.x, each.truth).sum()))
            window = self._heard.setdefault(live, deque(maxlen=WINDOW))
            window.extend(is_right(model, each.x, each.said).tolist())
            self._look(number * LOOK)
        return right

    def _look(self, now: float) -> None:
        heard = {number: VersionFeedback(number, len(rows), sum(rows)) for number, rows in self._heard.items()}
        self._endpoint, _ = promises.judged(self._endpoint, heard, now)
        known = retraining.open_one(self._endpoint)
        if known is not None and now >= known.decided_at + TRAINING:
            self._end(known, heard, now)
        if last := retraining.helped(self._endpoint, heard, {}):
            self._note(replace(last, state=RetrainingState.HELPED))
        begun, _ = retraining.decided(self._endpoint, heard, {}, now, f"j{len(self.begun) + 1}")
        if begun is not None:
            self._note(retraining.begun(begun))
            self.begun.append(now)

    def _end(self, known: Retraining, heard: promises.Heard, now: float) -> None:
        at = BEFORE + round(known.decided_at / LOOK)
        model, value = fitted(self._rows[at - BEFORE : at])
        first, _ = job_machine.create("j0", "alice", SPEC, 0.0)
        spec, retrains = retraining.again(first, known)
        job, _ = job_machine.create(known.job_id, "alice", spec, known.decided_at, retrains=retrains)
        job = replace(job, state=JobState.MISSED, earlier=EarlierRuns(cpu_seconds=TRAINING - 1))
        if value >= known.floor:
            number = self._endpoint.next_version
            self._models[number] = model
            self._deliver(job, number, value, known.floor)
        better = retraining.better_one(self._endpoint, known, heard, job)
        if better is not None:
            self._endpoint = versions.let_answer(self._endpoint, better.version, known.version)
        self._note(retraining.settled(self._endpoint, known, job, now))

    def _deliver(self, job: Job, number: int, value: float, target: float) -> None:
        terms = retraining.Terms.of(job)
        new = Version(number, job.id, 1, "accuracy", value, 0.0, job.id, Direction.MAX, node_id="n1", target=target)
        new = replace(new, retrain=terms.of_version(value, target) if terms is not None else None)
        endpoint, _ = versions.with_version(self._endpoint, new, may_replace=False)
        self._endpoint = replace(endpoint, next_version=number + 1)

    def _note(self, known: Retraining) -> None:
        self._endpoint = replace(self._endpoint, retrainings=retraining.with_one(self._endpoint.retrainings, known))


def figures_of(seeds: Iterable[int]) -> list[Json]:
    """What comes of each world, with the differences to the others, seed by seed."""
    found: list[Json] = []
    for kind, seed in itertools.product(WORLDS, seeds):
        rows = world_of(kind, seed)
        ours = Broker(rows)
        right = ours.run()
        count = len(ours.begun)
        spread = [(each + 0.5) * DAYS * DAY / count for each in range(count)]
        every = [each * DAY / 3 for each in range(1, DAYS * 3)]
        accuracy = {"ours": served(right, ours.begun, TRAINING, CORES - 1)}
        for name, times in zip(RIVALS, ((), every, spread), strict=False):
            accuracy[name] = served(on_schedule(rows, times), times, TRAINING, CORES - 1)
        right, alarmed = at_once(rows)
        left = CORES * SERVING_THREADS / (SERVING_THREADS + TRAINING_THREADS)
        accuracy["at once"] = served(right, alarmed, TRAINING / CORES, left)
        days = [sum(1 for each in ours.begun if at - DAY < each <= at) for at in ours.begun]
        found.append(
            {
                "world": kind,
                "seed": seed,
                "accuracy": {name: round(value, 5) for name, value in accuracy.items()},
                "trainings": {"ours": count, "every 8 h": len(every), "at once": len(alarmed)},
                "most_in_a_day": max(days, default=0),
            }
        )
    return found


def difference(figures: Iterable[Json], world: str, rival: str) -> tuple[float, float]:
    """By how much ours is better than another, in the mean, and half of its 95 % interval (normal)."""
    each = [f["accuracy"]["ours"] - f["accuracy"][rival] for f in figures if f["world"] == world]
    return statistics.fmean(each), 1.96 * statistics.stdev(each) / len(each) ** 0.5


def bars_of(figures: Json) -> tuple[Bar, ...]:
    """What has to hold."""
    runs = figures["runs"]
    bars = [Bar("most retrainings in a day", max(each["most_in_a_day"] for each in runs), f"<= {TERMS.at_most}")]
    for world in ("sudden", "gradual", "harder"):
        for rival in ("never", "evenly spread", "at once"):
            mean, half = difference(runs, world, rival)
            bars.append(Bar(f"{WORLDS[world]}: above {rival}, lower end", round(mean - half, 5), ">= 0"))
    mean, half = difference(runs, "lies", "never")
    bars.append(Bar("two days of wrong labels: above never, lower end", round(mean - half, 5), ">= -0.01"))
    still = [each["trainings"]["ours"] for each in runs if each["world"] == "still"]
    bars.append(Bar("nothing happens: retrainings, mean", round(statistics.fmean(still), 3), "<= 0.5"))
    return tuple(bars)


def section_of(figures: Json, bars: Iterable[Bar]) -> str:
    """What the documentation says of it."""
    head = (
        "world",
        "ours",
        *RIVALS,
        "ours - never",
        "ours - evenly spread",
        "ours - at once",
        "trainings",
        "those at once",
    )
    rows = []
    for world, words in WORLDS.items():
        runs = [each for each in figures["runs"] if each["world"] == world]
        accuracies = [statistics.fmean(run["accuracy"][name] for run in runs) for name in ("ours", *RIVALS)]
        told = [difference(runs, world, rival) for rival in ("never", "evenly spread", "at once")]
        differences = [f"{middle:+.4f} ± {half:.4f}" for middle, half in told]
        trainings = [f"{statistics.fmean(run['trainings'][who] for run in runs):.1f}" for who in ("ours", "at once")]
        rows.append((words, *(f"{each:.4f}" for each in accuracies), *differences, *trainings))
    return f"{table(head, rows)}\n\n{bars_table('bar', bars)}"


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each world.")] = 30,
    *,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Compare, print, and write ``retraining.json``."""
    figures: Json = {"runs": figures_of(range(seeds))}
    command = f"make bench-retraining BENCH_FLAGS='--seeds {seeds} --keep'"
    result = keep_result("retraining", command=command, figures=figures, keep=keep)
    text = section_of(figures, result.bars)
    print(text)
    if keep:
        write_section(DOCUMENT, "retraining", text)


if __name__ == "__main__":
    typer.run(main)
