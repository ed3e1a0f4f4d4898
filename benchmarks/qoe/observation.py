"""What the learned policy sees: one row of numbers for each thing it may do, all of them relative.

Times are in objectives, accuracies in those of the most accurate candidate, rates in capacities, so that one policy
serves other variants, objectives and machines. A row says what would come of that action; the policy scores rows, one
by one, with the same weights, so that neither the number of variants nor their order matters. One row is marked as the
heuristic's choice: the policy departs from that where it expects to gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, PATIENCE, Choice, Profile, View
from tiercel.serving.scheduling.utility import Utility

VARIANTS = 4
"""Variants that fit; with more a scheduler falls back on the heuristic."""

ACTIONS = VARIANTS * len(BATCHES) + 1
"""Each variant with each batch, and to wait."""

FEATURES = 25
WAIT = ACTIONS - 1
HEURISTIC = FEATURES - 1
"""The feature that is 1 in the row of the heuristic's choice."""

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_HEURISTIC = HeuristicScheduler()
_ROWS = np.array(BATCHES, np.float32)
# Ages are known at these fractions of the queue, from the oldest on; the youngest has only just come.
_KNOWN = np.array([0.0, 0.1, 0.5, 1.0], np.float32)


class Variants:
    """What stays the same for a set of variants: their durations and accuracies as arrays.

    Args:
        profiles: The most accurate first; at most :data:`VARIANTS`.
        objective: Seconds of delay aimed at.
        utility: What an answer is worth.
    """

    def __init__(self, profiles: tuple[Profile, ...], objective: float, utility: Utility) -> None:
        self.profiles = profiles
        self.objective = objective
        self.utility = utility
        self.best = profiles[0].accuracy
        self.accuracy = np.zeros((VARIANTS, 1), np.float32)
        self.seconds = np.full((VARIANTS, len(BATCHES)), 1e9, np.float32)
        self.exists = np.zeros((VARIANTS, len(BATCHES)), np.bool_)
        for index, profile in enumerate(profiles):
            length = len(profile.seconds)
            self.accuracy[index] = profile.accuracy / self.best
            self.seconds[index, :length] = np.asarray(profile.seconds, np.float32) / objective
            self.exists[index, :length] = True
        fast = max(profiles, key=lambda profile: profile.capacity(profile.largest_within(objective)))
        self.fast_row = 1.0 / fast.capacity(fast.largest_within(objective)) / objective
        self.fast_run = fast.seconds[0] / objective
        self.fast_accuracy = fast.accuracy / self.best
        samples = np.array([0.5, 1.5, 2.5], np.float32)
        self.worths = self._worth(1.0, samples)

    def _worth(self, accuracy: Floats | float, delay: Floats) -> Floats:
        """Utility over the best accuracy, for delays in objectives, between -1 and 1."""
        scaled: Any = self.utility.values(np.asarray(np.float32(self.best) * accuracy), delay, 1.0)
        result: Floats = np.maximum(scaled, -1.0) / np.float32(self.best)
        return result

    def allowed(self, view: View) -> Mask:
        """Which actions make sense: batches no larger than what waits fills, and waiting only while it harms nobody."""
        mask = np.zeros(ACTIONS, np.bool_)
        enough = np.searchsorted(_ROWS, view.count) + 1
        mask[:WAIT].reshape(VARIANTS, len(BATCHES))[:, :enough] = self.exists[:, :enough]
        mask[WAIT] = view.oldest / self.objective + PATIENCE + self.fast_run <= 1.0
        return mask

    def observe(self, view: View) -> Floats:
        """The rows for all actions, shape (:data:`ACTIONS`, :data:`FEATURES`), each number between -2 and 6."""
        objective, count, workers = view.objective, float(view.count), len(view.kinds[0].busy)
        taken = np.minimum(_ROWS, count)
        runs = self._runs(view.count)
        ages = np.array([view.oldest, view.p90, view.median, 0.0], np.float32) / np.float32(objective)
        places = np.concatenate(((taken - 1.0) / count, taken / count))
        age_last, age_next = np.interp(places, _KNOWN, ages).astype(np.float32).reshape(2, -1)
        others = sorted(view.kinds[0].busy)[1:]
        next_free = others[0] / objective if others else 1e9
        until = np.minimum(runs, np.float32(next_free))
        left = count - taken
        rate, recent = view.rate * objective, view.recent_rate * objective
        clearing = left * np.float32(self.fast_row / workers)
        meanwhile = np.float32(max(rate, recent)) * runs
        next_delay = np.where(left > 0, age_next, 0.0) + until + np.float32(self.fast_run)

        rows = np.zeros((ACTIONS, FEATURES), np.float32)
        grid = rows[:WAIT].reshape(VARIANTS, len(BATCHES), FEATURES)
        grid[:, :, 0] = self.accuracy
        grid[:, :, 1] = runs
        delays = np.stack((runs + ages[0], runs + age_last))
        grid[:, :, 2], grid[:, :, 3] = self._worth(self.accuracy, delays)
        grid[:, :, 4] = np.log2(taken) / 6.0
        per_row = runs / (taken * workers)
        grid[:, :, 5] = np.float32(rate) * per_row
        grid[:, :, 6] = np.float32(recent) * per_row
        grid[:, :, 7] = clearing
        grid[:, :, 8] = next_delay
        grid[:, :, 9] = self._worth(self.fast_accuracy, next_delay)
        grid[:, :, 10] = until + clearing + meanwhile * np.float32(self.fast_row / workers)
        grid[:, :, 11] = taken / count
        grid[:, :, 12] = self.seconds / (_ROWS * workers) * np.float32(rate)
        wait = rows[WAIT]
        wait[8] = ages[0] + PATIENCE + self.fast_run
        wait[7] = wait[10] = count * self.fast_row / workers
        wait[13] = 1.0
        rows[:, 14] = np.log1p(count) / 5.0
        rows[:, 15] = ages[0]
        rows[:, 16] = ages[2]
        rows[:, 17] = rate * self.fast_row / workers
        rows[:, 18] = recent * self.fast_row / workers
        rows[:, 19] = min(next_free, 2.0)
        rows[:, 20] = 1.0 - self.fast_accuracy
        rows[:, 21:24] = self.worths
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
        runs[:, index] = self.seconds[:, index - 1] * (1 - share) + self.seconds[:, index] * share
        return runs


def decision_of(action: int) -> Choice | None:
    """What an action stands for."""
    if action == WAIT:
        return None
    variant, batch = divmod(action, len(BATCHES))
    return Choice(variant, BATCHES[batch])


def action_of(decision: Choice | None, count: int) -> int:
    """The action that stands for a decision when so many rows wait: a batch larger than these is cut to them."""
    if decision is None:
        return WAIT
    batch = min((decision.batch - 1).bit_length(), (count - 1).bit_length())
    return decision.variant * len(BATCHES) + batch
