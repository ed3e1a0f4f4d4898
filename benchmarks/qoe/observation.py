"""What the learned policy sees: one row of numbers for each thing it may do, all of them relative.

Times are in objectives, accuracies in those of the most accurate candidate, rates in capacities, so that one policy
serves other variants, objectives and machines. A row says what would come of that action; the policy scores rows, one
by one, with the same weights, so that neither the number of variants or of kinds of workers nor their order matters.
One row is marked as the heuristic's choice: the policy departs from that where it expects to gain.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, PATIENCE, Choice, View, WorkerKind
from tiercel.serving.scheduling.utility import Utility

KINDS = 4
"""Kinds of workers that fit."""

VARIANTS = 4
"""Variants that fit; with more, or with more kinds, a scheduler falls back on the heuristic."""

ACTIONS = KINDS * VARIANTS * len(BATCHES) + 1
"""To wait, and each variant with each batch on each kind of worker; a pool of fewer kinds has the first of them."""

FEATURES = 28
WAIT = 0
HEURISTIC = FEATURES - 1
"""The feature that is 1 in the row of the heuristic's choice."""

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_HEURISTIC = HeuristicScheduler()
_ROWS = np.array(BATCHES, np.float32)
# Ages are known at these fractions of the queue, from the oldest on; the youngest has only just come.
_KNOWN = np.array([0.0, 0.1, 0.5, 1.0], np.float32)
_NEVER = 1e9  # objectives; of what is not there


class Observer:
    """What stays the same for a pool: its workers, the durations and accuracies of its variants, as arrays.

    Attributes:
        actions: How many there are in this pool, at most :data:`ACTIONS`.

    Args:
        kinds: At most :data:`KINDS`, with at most :data:`VARIANTS` variants, the most accurate first.
        objective: Seconds of delay aimed at.
        utility: What an answer is worth.
    """

    def __init__(self, kinds: tuple[WorkerKind, ...], objective: float, utility: Utility) -> None:
        self.objective = objective
        self.utility = utility
        self.profiles = tuple(kind.profiles for kind in kinds)
        self.counts = tuple(len(kind.busy) for kind in kinds)
        variants = kinds[0].profiles
        self.best = variants[0].accuracy
        self.accuracy = np.zeros((VARIANTS, 1), np.float32)
        self.accuracy[: len(variants), 0] = [profile.accuracy / self.best for profile in variants]
        self._grid = (len(kinds), VARIANTS, len(BATCHES))
        self.actions = math.prod(self._grid) + 1
        self.seconds = np.full(self._grid, _NEVER, np.float32)  # of a run, in objectives
        self.exists = np.zeros(self._grid, np.bool_)
        for number, kind in enumerate(kinds):
            for index, profile in enumerate(kind.profiles):
                length = len(profile.seconds)
                self.seconds[number, index, :length] = np.asarray(profile.seconds, np.float32) / objective
                self.exists[number, index, :length] = True
        self.workers = np.array(self.counts, np.float32)[:, None, None]
        rates = [
            sum(len(kind.busy) * each.capacity(each.largest_within(objective)) for kind, each in by_kind)
            for by_kind in zip(*([(kind, each) for each in kind.profiles] for kind in kinds), strict=True)
        ]
        fast = max(range(len(rates)), key=lambda index: (rates[index], index))
        self.fast_row = 1.0 / rates[fast] / objective  # of the whole pool
        self.fast_runs = self.seconds[:, fast, 0]  # of a row, by kind
        self.fast_accuracy = variants[fast].accuracy / self.best
        alone = self.seconds[:, :, :1]
        self.slowness = np.log2(alone / alone.min(axis=0)) / 4.0
        self.worths = self._worth(1.0, np.array([0.5, 1.5, 2.5], np.float32))

    def is_of(self, view: View) -> bool:
        """Whether it holds for what is there now."""
        return (
            self.profiles == tuple([kind.profiles for kind in view.kinds])
            and self.counts == tuple([len(kind.busy) for kind in view.kinds])
            and self.objective == view.objective
            and self.utility == view.utility
        )

    def _worth(self, accuracy: Floats | float, delay: Floats) -> Floats:
        """Utility over the best accuracy, for delays in objectives, between -1 and 1."""
        scaled: Any = self.utility.values(np.asarray(np.float32(self.best) * accuracy), delay, 1.0)
        result: Floats = np.maximum(scaled, -1.0) / np.float32(self.best)
        return result

    def allowed(self, view: View) -> Mask:
        """Which actions make sense: on free workers, batches no larger than what waits fills, waiting if it harms none.

        Shape (actions,).
        """
        mask = np.zeros(self.actions, np.bool_)
        enough = int(np.searchsorted(_ROWS, view.count)) + 1
        grid = mask[1:].reshape(self._grid)
        for number, kind in enumerate(view.kinds):
            if kind.idle:
                grid[number, :, :enough] = self.exists[number, :, :enough]
        ends = [
            max(min(kind.busy) / self.objective, PATIENCE) + float(self.fast_runs[number])
            for number, kind in enumerate(view.kinds)
        ]
        mask[WAIT] = view.oldest / self.objective + min(ends) <= 1.0
        return mask

    def observe(self, view: View) -> Floats:
        """The rows for all actions, shape (actions, :data:`FEATURES`), each number between -2 and 6."""
        objective, count = view.objective, float(view.count)
        taken = np.minimum(_ROWS, count)
        runs = self._runs(view.count)
        ages = np.array([view.oldest, view.p90, view.median, 0.0], np.float32) / np.float32(objective)
        places = np.concatenate(((taken - 1.0) / count, taken / count))
        age_last, age_next = np.interp(places, _KNOWN, ages).astype(np.float32).reshape(2, -1)
        next_free, next_end = self._others(view)
        until = np.minimum(runs, next_free)
        left = count - taken
        rate, recent = view.rate * objective, view.recent_rate * objective
        clearing = left * np.float32(self.fast_row)
        meanwhile = np.float32(max(rate, recent)) * runs
        next_answer = np.minimum(runs + self.fast_runs[:, None, None], next_end)
        next_delay = np.where(left > 0, age_next, 0.0) + next_answer
        # What the same run would be worth on the worker that would end it first, whether that is free now or not.
        free_at = np.array([min(min(kind.busy) / objective, _NEVER) for kind in view.kinds], np.float32)[:, None, None]
        soonest = (free_at + runs).min(axis=0)

        rows = np.zeros((self.actions, FEATURES), np.float32)
        grid = rows[1:].reshape(*self._grid, FEATURES)
        grid[..., 0] = self.accuracy
        grid[..., 1] = runs
        grid[..., 2], grid[..., 3] = self._worth(self.accuracy, np.stack((runs + ages[0], runs + age_last)))
        grid[..., 4] = np.log2(taken) / 6.0
        per_row = 1.0 / (self.workers * taken / runs).sum(axis=0)  # of the whole pool, with such runs only
        grid[..., 5] = np.float32(rate) * per_row
        grid[..., 6] = np.float32(recent) * per_row
        grid[..., 7] = clearing
        grid[..., 8] = next_delay
        grid[..., 9] = self._worth(self.fast_accuracy, next_delay)
        grid[..., 10] = until + clearing + meanwhile * np.float32(self.fast_row)
        grid[..., 11] = taken / count
        grid[..., 12] = np.float32(rate) / (self.workers * _ROWS / self.seconds).sum(axis=0)
        grid[..., 24] = self.slowness
        grid[..., 25] = self._worth(self.accuracy, soonest + ages[0]) - grid[..., 2]
        wait = rows[WAIT]
        wait[8] = ages[0] + max(PATIENCE, float(free_at.min())) + self.fast_runs.min()
        wait[7] = wait[10] = count * self.fast_row
        wait[13] = 1.0
        busy = free_at[:, 0, 0] > 0.0
        if busy.any():
            ends = (free_at + self.seconds)[busy, :, 0].min(axis=0)
            wait[25] = self._worth(self.accuracy[:, 0], ends + ages[0]).max()
        rows[:, 14] = np.log1p(count) / 5.0
        rows[:, 15] = ages[0]
        rows[:, 16] = ages[2]
        rows[:, 17] = rate * self.fast_row
        rows[:, 18] = recent * self.fast_row
        # Where several are free this is 2, and the part of those that are tells so.
        rows[:, 19] = min(float(next_free[next_free > 0.0].min(initial=2.0)), 2.0)
        rows[:, 20] = 1.0 - self.fast_accuracy
        rows[:, 21:24] = self.worths
        rows[:, 26] = sum(kind.idle for kind in view.kinds) / view.workers
        rows[action_of(_HEURISTIC.decide(view), view.count), HEURISTIC] = 1.0
        np.maximum(rows, -2.0, out=rows)
        return np.minimum(rows, 6.0, out=rows)

    def _runs(self, count: int) -> Floats:
        """Durations of all settings, in objectives, for no more rows than there are."""
        index = (count - 1).bit_length()
        if index >= len(BATCHES) or BATCHES[index] == count:
            return self.seconds
        runs = self.seconds.copy()
        before = BATCHES[index - 1]
        share = np.float32((count - before) / (BATCHES[index] - before))
        runs[..., index] = self.seconds[..., index - 1] * (1 - share) + self.seconds[..., index] * share
        return runs

    def _others(self, view: View) -> tuple[Floats, Floats]:
        """When the next worker is free, and when it would end a fast run, if one of each kind is taken first.

        In objectives, of shape (kinds, 1, 1).
        """
        workers = sorted(
            (at / view.objective, at / view.objective + float(self.fast_runs[number]), number)
            for number, kind in enumerate(view.kinds)
            for at in kind.busy
            if at < math.inf
        )
        free, ends = np.full((2, len(view.kinds), 1, 1), _NEVER, np.float32)
        for number in range(len(view.kinds)):
            first = next((index for index, worker in enumerate(workers) if worker[2] == number), -1)
            others = [worker for index, worker in enumerate(workers) if index != first]
            if others:
                free[number], ends[number] = others[0][0], min(worker[1] for worker in others)
        return free, ends


def decision_of(action: int) -> Choice | None:
    """What an action stands for."""
    if action == WAIT:
        return None
    rest, batch = divmod(action - 1, len(BATCHES))
    kind, variant = divmod(rest, VARIANTS)
    return Choice(variant, BATCHES[batch], kind)


def action_of(decision: Choice | None, count: int) -> int:
    """The action that stands for a decision when so many rows wait: a batch larger than these is cut to them."""
    if decision is None:
        return WAIT
    batch = min((decision.batch - 1).bit_length(), (count - 1).bit_length())
    return 1 + (decision.kind * VARIANTS + decision.variant) * len(BATCHES) + batch
