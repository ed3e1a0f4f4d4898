"""Whether a library's detector finds sooner than ours that inputs or accuracy changed, at as few false alarms.

``pip install river==0.26.1; python -m benchmarks.drift_rivals`` (half an hour; ``--days 30`` for a short one). All is
drawn, with seeds. The rival is ADWIN (A. Bifet and R. Gavaldà, 2007: Learning from Time-Changing Data with Adaptive
Windowing, SIAM SDM) as river has it, of inputs with the same share of false alarms for a look as ours; and ours with
four times the rows. Why it is as it is: docs/decisions/009-own-drift.md.
"""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import typer

from tiercel.broker.lifecycle.promises import LEAST_ROWS
from tiercel.core.feedback import wilson
from tiercel.serving.drift.watch import FALSE_ALARM, NEW_ROWS, ROWS, distances
from tiercel.serving.explaining.feedback import WINDOW_ROWS

NUMBERS: Final = 4
MOST_ROWS: Final = 4 * ROWS
DAY: Final = 86_400  # rows of inputs, one a second
MOST_DAYS: Final = 30  # of inputs, whose rows are many
SEEDS: Final = 10
# Of accuracy: rows that applications tell of within five minutes, from one look to the next, and what was promised.
TOLD: Final = 15
PROMISED: Final = 0.90
LOOKS_A_DAY: Final = 288

Floats = npt.NDArray[np.float64]
Change = Callable[[Floats, Floats], Floats]  # (rows since the change, what is drawn of the first number) -> that number


def adwin(delta: float, clock: int) -> Any:
    """A detector of river's."""
    return importlib.import_module("river.drift").ADWIN(delta=delta, clock=clock, grace_period=clock)


class Detector(Protocol):
    """Is told of the rows of one look after the other."""

    def look(self, rows: Floats) -> bool:
        """Take the rows of one look; whether they are other than before."""


class Ours:
    """The last rows against the first, as the inference server looks at them.

    Args:
        reference: The first rows.
        count: How many of them are kept, and as many of the last.
    """

    def __init__(self, reference: Floats, count: int) -> None:
        self._reference, self._recent = np.sort(reference[:count], axis=0), reference[:count]
        self._bound = math.sqrt(math.log(2 * NUMBERS / FALSE_ALARM) / count)

    def look(self, rows: Floats) -> bool:
        """See :meth:`Detector.look`."""
        self._recent = np.concatenate([self._recent, rows])[-len(self._reference) :]
        return float(distances(self._reference, self._recent).max()) > self._bound


class Adwin:
    """ADWIN of each number, as its rank among the first rows, so that any distribution will do, and of its spread."""

    def __init__(self, reference: Floats) -> None:
        self._reference = np.sort(reference[:ROWS], axis=0)
        self._each = [adwin(FALSE_ALARM / NUMBERS / 2, NEW_ROWS) for _ in range(2 * NUMBERS)]

    def look(self, rows: Floats) -> bool:
        """See :meth:`Detector.look`."""
        found = False
        for number in range(NUMBERS):
            ranks = np.searchsorted(self._reference[:, number], rows[:, number]) / ROWS
            pair = self._each[2 * number : 2 * number + 2]
            for detector, values in zip(pair, (ranks, np.abs(2 * ranks - 1)), strict=True):
                for value in values.tolist():
                    detector.update(value)
                    found |= detector.drift_detected
        return found


DETECTORS: Final[dict[str, Callable[[Floats], Detector]]] = {
    "ours": partial(Ours, count=ROWS),
    f"ours with {MOST_ROWS} rows": partial(Ours, count=MOST_ROWS),
    "ADWIN": Adwin,
}


def looks(change: Change, seed: int, count: int) -> Iterator[Floats]:
    """The rows of one look after the other, the first number changed, the others as they are."""
    draw = np.random.default_rng(seed)
    for at in range(count):
        rows = draw.standard_normal((NEW_ROWS, NUMBERS))
        rows[:, 0] = change(np.arange(NEW_ROWS, dtype=np.float64) + at * NEW_ROWS, rows[:, 0])
        yield rows


def first(seed: int) -> Floats:
    """The rows that are the reference."""
    return np.random.default_rng((seed, 1)).standard_normal((MOST_ROWS, NUMBERS))


def still(rows: Floats, drawn: Floats) -> Floats:
    """No change."""
    return drawn


def by_day(size: float) -> Change:
    """Up and down within a day by so many standard deviations."""
    return lambda rows, drawn: drawn + size * np.sin(2 * math.pi * rows / DAY)


def step(size: float) -> Change:
    """A shift at once; the first two hours are as they were."""
    return lambda rows, drawn: drawn + size * (rows >= DAY / 12)


def slope(size: float, days: float) -> Change:
    """A shift that comes slowly, and then stays."""
    return lambda rows, drawn: drawn + size * np.minimum(rows / (days * DAY), 1.0)


def wider(times: float) -> Change:
    """A larger spread about the same mean."""
    return lambda rows, drawn: np.where(rows >= DAY / 12, drawn * times, drawn)


# With the minute of the change, and the hour after which nobody waits any longer.
CHANGES: Final[dict[str, tuple[Change, int, int]]] = {
    "a shift of 0.2 standard deviations": (step(0.2), 120, 26),
    "a shift of 0.5": (step(0.5), 120, 26),
    "a shift of 1": (step(1.0), 120, 26),
    "1 within a day": (slope(1.0, 1), 0, 26),
    "1 within a week": (slope(1.0, 7), 0, 7 * 24),
    "twice the spread": (wider(2.0), 120, 26),
}


def alarms_of_inputs(name: str, change: Change, days: int) -> None:
    """Print in how many looks each cries wolf, and what a look costs."""
    watches = {who: make(first(0)) for who, make in DETECTORS.items()}
    found, cost = dict.fromkeys(watches, 0), dict.fromkeys(watches, 0.0)
    count = days * DAY // NEW_ROWS
    for rows in looks(change, 0, count):
        for who, watch in watches.items():
            begin = time.process_time()
            found[who] += watch.look(rows)
            cost[who] += time.process_time() - begin
    told = [f"{who} {found[who]} ({cost[who] / count * 1e3:.2f} ms each)" for who in watches]
    print(f"{name}, looks of {count} in {days} days that alarm: {', '.join(told)}", flush=True)


def sooner_of_inputs() -> None:
    """Print how many minutes after its begin each finds each change."""
    for name, (change, begin, hours) in CHANGES.items():
        told = []
        for who, make in DETECTORS.items():
            found = []
            for seed in range(1, SEEDS + 1):
                watch, count = make(first(seed)), hours * 36
                at = next((at for at, rows in enumerate(looks(change, seed, count), 1) if watch.look(rows)), None)
                found += [] if at is None else [at * NEW_ROWS / 60 - begin]
            told.append(f"{who} {_words(found)}")
        print(f"{name}: {', '.join(told)}", flush=True)


def _words(minutes: list[float]) -> str:
    middle = f"{statistics.median(minutes):.0f} min" if minutes else "never"
    return f"{middle} ({len(minutes)} of {SEEDS})"


def fixed(rows: int) -> Callable[[npt.NDArray[np.bool_]], Iterable[int]]:
    """The last rows, as the inference server keeps them."""
    return lambda right: np.minimum(np.arange(1, len(right) + 1), rows).tolist()


def cut(delta: float) -> Callable[[npt.NDArray[np.bool_]], Iterable[int]]:
    """The last rows, cut where ADWIN finds a change."""

    def widths(right: npt.NDArray[np.bool_]) -> Iterator[int]:
        detector = adwin(delta, TOLD)
        for each in right.tolist():
            detector.update(each)
            yield min(WINDOW_ROWS, int(detector.width))

    return widths


WINDOWS: Final = {
    f"the last {WINDOW_ROWS}": fixed(WINDOW_ROWS),
    "the last 500": fixed(500),
    "the last 300": fixed(300),
    "cut by ADWIN, 1e-5": cut(1e-5),
    "cut by ADWIN, 0.002": cut(0.002),
}


def alarms_of_accuracy(right: npt.NDArray[np.bool_], widths: Iterable[int]) -> list[int]:
    """The looks at which a version begins to miss what was promised, as the broker judges it."""
    total = np.concatenate([[0], np.cumsum(right)])
    found, is_missed = [], False
    for row, width in enumerate(widths, 1):
        if row % TOLD or width < LEAST_ROWS:
            continue
        count = int(total[row] - total[row - width])
        if not is_missed and wilson(count, width)[1] < PROMISED:
            is_missed = True
            found.append(row // TOLD)
        elif is_missed and count / width >= PROMISED:
            is_missed = False
    return found


def accuracy(days: int) -> None:
    """Print of each window how often it alarms for nothing, and after how many looks it finds each change."""
    count = days * LOOKS_A_DAY * TOLD
    rows = np.arange(20 * LOOKS_A_DAY * TOLD) / TOLD  # looks
    before = 4 * LOOKS_A_DAY
    worlds = {
        "from 0.93 to 0.80 at once": np.where(rows < before, 0.93, 0.80),
        "to 0.87 at once": np.where(rows < before, 0.93, 0.87),
        "to 0.80 within four days": 0.93 - 0.13 * np.clip((rows - before) / before, 0, 1),
    }
    for name, widths in WINDOWS.items():
        for truth in (0.93, 0.91):
            right = np.random.default_rng(0).random(count) < truth
            found = alarms_of_accuracy(right, widths(right))
            print(f"{name}, right {truth}: {len(found)} alarms in {days} days", flush=True)
        for world, chances in worlds.items():
            after = []
            for seed in range(1, SEEDS + 1):
                right = np.random.default_rng(seed).random(len(rows)) < chances
                late = [at - before for at in alarms_of_accuracy(right, widths(right)) if at > before]
                after += late[:1]
            middle = f"{statistics.median(after):.0f} looks" if after else "never"
            print(f"  {world}: {middle} ({len(after)} of {SEEDS})", flush=True)


def main(days: Annotated[int, typer.Option(help="Of false alarms.")] = 365) -> None:
    """Print all of it."""
    accuracy(days)
    sooner_of_inputs()
    alarms_of_inputs("by day 0.2 standard deviations up and down", by_day(0.2), min(days, MOST_DAYS))
    alarms_of_inputs("nothing changes", still, min(days, MOST_DAYS))


if __name__ == "__main__":
    typer.run(main)
