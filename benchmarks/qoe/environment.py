"""The pool as a gymnasium environment: a step is a decision of a free worker, an episode a few hundred requests.

In half of the episodes all workers are alike, in the others there are two to four kinds of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from benchmarks.qoe.observation import ACTIONS, FEATURES, Observer, decision_of
from benchmarks.qoe.scenarios import JITTER, mixed_pool, random_arrivals, random_pool
from testing.pool.simulation import PoolSimulation, simulate
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Profile, Scheduler, View

Observation = npt.NDArray[np.float32]
_REWARD_SCALE = 0.2


class PoolEnvironment(gymnasium.Env[Observation, np.int64]):
    """Rewards are utility over the best accuracy, less what the heuristic earned per request of the same arrivals.

    That baseline belongs to the arrivals and not to the actions, so it changes no optimum; it takes away most of what
    chance adds (the baseline of the same arrival sequence, as in work in the line of DeepRM). Requests given up earn 0.

    Args:
        seed: Of all episodes.
        measured: Profiles of real models, to be varied in some of the episodes.
        requests: About how many in an episode.
        baseline: Makes the scheduler whose mean utility is subtracted.
    """

    def __init__(
        self,
        seed: int,
        measured: tuple[Profile, ...] | None = None,
        requests: int = 300,
        baseline: Callable[[], Scheduler] = HeuristicScheduler,
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-2.0, 6.0, (ACTIONS, FEATURES), np.float32)
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self._rng = random.Random(seed)
        self._measured = measured
        self._requests = requests
        self._make_baseline = baseline

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Any]:
        """A new pool and new arrivals."""
        super().reset(seed=seed)
        if seed is not None:
            self._rng = random.Random(seed)
        view = None
        while view is None:
            if self._rng.random() < 0.5:
                pool = random_pool(self._rng, self._measured)
            else:
                pool = mixed_pool(self._rng, self._rng.choice((2, 3, 4)), JITTER)
            arrivals = random_arrivals(pool, self._rng, self._requests)
            jitter = self._rng.getrandbits(32)
            self._simulation = PoolSimulation(pool, arrivals, random.Random(jitter))
            view = self._simulation.next_view()
        self._best = pool.kinds[0].profiles[0].accuracy
        self._baseline = simulate(pool, arrivals, self._make_baseline(), random.Random(jitter)).mean
        self._counted = 0
        self._observer = Observer(pool.kinds, pool.objective, pool.utility)
        self._view = view
        return self._padded(view), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Do it, and go on to the next decision."""
        earned = self._simulation.apply(decision_of(int(action)))
        view = self._simulation.next_view()
        score = self._simulation.score
        gone = score.answered + score.dropped
        reward = (earned - (gone - self._counted) * self._baseline) / self._best * _REWARD_SCALE
        self._counted = gone
        if view is None:
            return np.zeros((ACTIONS, FEATURES), np.float32), reward, True, False, {"gain": score.mean - self._baseline}
        self._view = view
        return self._padded(view), reward, False, False, {}

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions make sense now."""
        mask = np.zeros(ACTIONS, np.bool_)
        mask[: self._observer.actions] = self._observer.allowed(self._view)
        return mask

    def _padded(self, view: View) -> Observation:
        """With rows of nothing for the actions that this pool has not, which are masked."""
        rows = np.zeros((ACTIONS, FEATURES), np.float32)
        rows[: self._observer.actions] = self._observer.observe(view)
        return rows

    @property
    def view(self) -> View:
        """What the last observation was made from."""
        return self._view
