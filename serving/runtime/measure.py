"""What batching does to a model, found out when it is loaded: whether it is right, and what it takes. Blocking."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.errors import TiercelError, TooLargeError
from tiercel.serving.runtime.batching_trial import BatchTrial, Model
from tiercel.serving.runtime.profile import HAND_OVER_SECONDS, LatencyProfile, pays_to_go_on

if TYPE_CHECKING:
    from tiercel.serving.tensors import Array

# So that a model of 8 ms a row is tried in batches of up to 16, more than once each: of single runs it is chance which
# size looks best.
_MEASURE_SECONDS = 0.6
MEASURE_WALL_SECONDS = 1.0
"""After so long larger batches are not tried, whatever CPU there was."""
# No batch takes longer that is larger than one row: other models' calls may have to wait so long for a worker.
_LONGEST_BATCH_SECONDS = 0.15
_RUNS_PER_SIZE, _LEAST_RUNS_PER_SIZE = 5, 2
# The first two runs of a size make room for what is in between, which takes up to a tenth longer: as much as a larger
# batch may save.
_SECONDS_PER_SIZE = 0.03
# What another process measured may be off by this much: it had caches of its own.
_MOST_OVER = 3.0
# A version that takes half as long again as the one before it, or a third less, is another model.
_ALIKE = 1.5


@dataclass(frozen=True, slots=True)
class Batching:
    """What was found out."""

    profile: LatencyProfile | None  # times by rows, or None where rows must not run together
    reason: str = ""  # why they must not; empty where they may
    elements: int = 0  # input elements of a row


def measured_batching(session: Model, shapes: Mapping[str, Sequence[int]], max_rows: int) -> Batching:
    """The same as :func:`tried_batching`; a model that cannot be tried is run call by call."""
    try:
        return tried_batching(session, shapes, max_rows)
    except TiercelError as error:
        return Batching(None, f"it could not be tried: {error.message}")


def tried_batching(
    session: Model, shapes: Mapping[str, Sequence[int]], max_rows: int, known: Batching | None = None
) -> Batching:
    """Whether calls of this model may run together, and how long batches take.

    Rows must not influence each other, see :meth:`.BatchTrial.why_mixed_up`. Takes up to about 0.6 seconds of CPU, or a
    few runs of a model that is slower than that; less where what is known is only confirmed.

    Args:
        session: The model, warm.
        shapes: Shapes by input that are known to work; others are made up.
        max_rows: The largest batch that is of interest.
        known: What was found of the version before; it is found again if runs of one row, and of the largest batch
            that would be made, take about as long.

    Raises:
        InvalidRequestError: The model does not take the rows that were made up.
        InferenceFailedError: The model failed.
    """
    trial = BatchTrial(session, shapes)
    reason = trial.why_not(max_rows) or trial.why_mixed_up()
    if reason:
        return Batching(None, reason)
    if known is not None and _is_as_known(trial, known, max_rows):
        return known
    return Batching(_profile(trial, trial.most_rows(max_rows)), "", trial.elements)


def is_borne_out(session: Model, said: Batching, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether runs of the largest batch that would be made bear out what another process said that they take.

    They also make room for such a batch, so that no request has to wait for that.

    Args:
        session: The model, warm.
        said: What was said.
        shapes: As they were when that was measured.
    """
    profile = said.profile
    if profile is None:
        return True
    trial = BatchTrial(session, shapes)
    rows = profile.most_rows()
    if trial.why_not(profile.rows[-1]) or trial.elements != said.elements or rows > trial.most_rows(rows):
        return False
    bound = _MOST_OVER * profile.estimate(rows) + HAND_OVER_SECONDS
    try:
        batch = trial.batch(rows)
        return any(trial.seconds(batch) <= bound for _ in range(2))  # the first one makes room
    except TiercelError:
        return False


def _is_as_known(trial: BatchTrial, known: Batching, max_rows: int) -> bool:
    profile = known.profile
    if profile is None or known.elements != trial.elements or profile.rows[-1] > trial.most_rows(max_rows):
        return False
    for rows in sorted({1, profile.most_rows()}):
        least, most = profile.estimate(rows) / _ALIKE, profile.estimate(rows) * _ALIKE
        if not least <= _fastest(trial, trial.batch(rows), most) <= most:
            return False
    return True


def _profile(trial: BatchTrial, max_rows: int) -> LatencyProfile:
    clock = trial.session.busy_clock
    give_up, give_up_anyway = clock() + _MEASURE_SECONDS, time.perf_counter() + MEASURE_WALL_SECONDS
    sizes: list[int] = []
    seconds: list[float] = []
    size = 1
    while True:
        try:
            seconds.append(_fastest(trial, trial.batch(size)))
        except TooLargeError:
            if not sizes:
                raise
            return LatencyProfile(tuple(sizes), tuple(seconds))
        sizes.append(size)
        next_seconds = 2 * seconds[-1]
        over = clock() + _LEAST_RUNS_PER_SIZE * next_seconds > give_up or time.perf_counter() > give_up_anyway
        if size >= max_rows or over or next_seconds > _LONGEST_BATCH_SECONDS or not pays_to_go_on(sizes, seconds):
            return LatencyProfile(tuple(sizes), tuple(seconds))
        size = min(2 * size, max_rows)


def _fastest(trial: BatchTrial, batch: Mapping[str, Array], fast_enough: float = 0.0) -> float:
    """Seconds of the fastest of a few runs; none follows one that is fast enough."""
    clock = trial.session.busy_clock
    best = float("inf")
    enough = clock() + _SECONDS_PER_SIZE
    for run in range(1, _RUNS_PER_SIZE + 1):
        best = min(best, trial.seconds(batch))
        if best <= fast_enough or (run >= _LEAST_RUNS_PER_SIZE and clock() > enough):
            break
    return best
