"""What batching does to a model, found out when it is loaded: whether it is right, and what it takes. Blocking."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator, default_rng

from tiercel.serving.batching.profile import HAND_OVER_SECONDS, LatencyProfile, pays_to_go_on
from tiercel.serving.errors import ServingError

if TYPE_CHECKING:
    from tiercel.serving.models.engine import Session
    from tiercel.serving.tensors import Array, TensorSpec

# So that a model of 5 ms a row is tried in batches of up to 16. None is found to pay that takes longer than half of it,
# which bounds how long other models' calls may have to wait for a worker.
_MEASURE_SECONDS = 0.25
MEASURE_WALL_SECONDS = 1.0
"""After so long larger batches are not tried, whatever CPU there was."""
_RUNS_PER_SIZE = 5
# The first two runs of a size make room for what is in between, which takes up to a tenth longer: as much as a larger
# batch may save.
_SECONDS_PER_SIZE = 0.015
# What another process measured may be off by this much: it had caches of its own.
_MOST_OVER = 3.0
_MAX_ELEMENTS = 4 * 1024**2
# Other sizes are computed by other kernels, which add up in another order.
_RELATIVE, _ABSOLUTE = 1e-2, 1e-4


@dataclass(frozen=True, slots=True)
class Batching:
    """What was found out.

    Attributes:
        profile: Times by rows, or None where rows must not run together.
        reason: Why they must not; empty where they may.
        elements: Input elements of a row.
    """

    profile: LatencyProfile | None
    reason: str = ""
    elements: int = 0


def measured_batching(session: Session, shapes: Mapping[str, Sequence[int]], max_rows: int) -> Batching:
    """The same as :func:`tried_batching`; a model that cannot be tried is run call by call."""
    try:
        return tried_batching(session, shapes, max_rows)
    except ServingError as error:
        return Batching(None, f"it could not be tried: {error.message}")


def tried_batching(session: Session, shapes: Mapping[str, Sequence[int]], max_rows: int) -> Batching:
    """Whether calls of this model may run together, and how long batches take.

    Rows must not influence each other: two different rows must give the same alone, together, and in another order.
    Takes up to about a quarter of a second of CPU, or a few runs of a model that is slower than that.

    Args:
        session: The model, warm.
        shapes: Shapes by input that are known to work; others are made up.
        max_rows: The largest batch that is of interest.

    Raises:
        InvalidRequestError: The model does not take the rows that were made up.
        InferenceFailedError: The model failed.
    """
    reason = _why_not(session, max_rows)
    if reason:
        return Batching(None, reason)
    row_shapes = {name: _row_shape(spec, shapes) for name, spec in session.inputs.items()}
    elements = sum(math.prod(shape) for shape in row_shapes.values())
    if elements > _MAX_ELEMENTS:
        return Batching(None, "a row is too large to try it")
    random = default_rng(0)
    first, second = (_row(session.inputs, row_shapes, random) for _ in range(2))
    reason = _mixed_up(session, first, second)
    if reason:
        return Batching(None, reason)
    profile = _profile(session, first, max(1, min(max_rows, _MAX_ELEMENTS // max(1, elements))))
    return Batching(profile, "", elements)


def is_borne_out(session: Session, said: Batching, shapes: Mapping[str, Sequence[int]]) -> bool:
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
    row_shapes = {name: _row_shape(spec, shapes) for name, spec in session.inputs.items()}
    elements = sum(math.prod(shape) for shape in row_shapes.values())
    rows = profile.most_rows()
    if _why_not(session, profile.rows[-1]) or elements != said.elements:
        return False
    if rows * elements > max(_MAX_ELEMENTS, elements):
        return False
    row = _row(session.inputs, row_shapes, default_rng(0))
    feeds = {name: np.repeat(value, rows, axis=0) for name, value in row.items()}
    bound = _MOST_OVER * profile.estimate(rows) + HAND_OVER_SECONDS
    try:
        return any(_seconds_of_run(session, feeds) <= bound for _ in range(2))  # the first one makes room
    except ServingError:
        return False


def _why_not(session: Session, max_rows: int) -> str:
    if max_rows <= 1:
        return "batches are switched off, or the time this model takes depends on values"
    if not session.inputs:
        return "the model has no inputs"
    for kind, specs in (("input", session.inputs), ("output", session.outputs)):
        for spec in specs.values():
            if not spec.shape or spec.shape[0] != -1:
                return f"the first axis of {kind} '{spec.name}' is not free"
    return ""


def _row_shape(spec: TensorSpec, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    known = tuple(shapes.get(spec.name) or (1 if size < 0 else size for size in spec.shape))
    return (1, *known[1:])


def _row(
    inputs: Mapping[str, TensorSpec], shapes: Mapping[str, tuple[int, ...]], random: Generator
) -> dict[str, Array]:
    """One row of every input: small numbers that most models can make sense of, indices among them."""
    row: dict[str, Array] = {}
    for name, spec in inputs.items():
        dtype = spec.data_type.dtype
        if dtype.kind == "f":
            row[name] = random.standard_normal(shapes[name]).astype(dtype)
        elif dtype.kind == "O":
            row[name] = np.array(random.choice(["a", "b"], shapes[name]).tolist(), np.object_)
        else:
            row[name] = random.integers(0, 2, shapes[name]).astype(dtype)
    return row


def _mixed_up(session: Session, first: Mapping[str, Array], second: Mapping[str, Array]) -> str:
    """Why rows do not stay apart; empty if they do."""
    names = session.output_names
    alone = [session.run(names, row) for row in (first, second)]
    for order in ((0, 1), (1, 0, 0)):
        rows = [(first, second)[index] for index in order]
        together = session.run(names, {name: np.concatenate([row[name] for row in rows]) for name in first})
        for position, name in enumerate(names):
            output = together[position]
            if not output.ndim or len(output) != len(order) or any(len(each[position]) != 1 for each in alone):
                return f"output '{name}' has not a row for each row of the inputs"
            for place, index in enumerate(order):
                if not _alike(output[place], alone[index][position][0]):
                    return f"a row of output '{name}' depends on the other rows of the batch"
    return ""


def _alike(one: Array, other: Array) -> bool:
    if np.shape(one) != np.shape(other):
        return False
    if np.asarray(one).dtype.kind == "f":
        scale = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
        return bool(np.allclose(one, other, rtol=_RELATIVE, atol=_ABSOLUTE * max(scale, 1e-30), equal_nan=True))
    return bool(np.array_equal(one, other))


def _profile(session: Session, row: Mapping[str, Array], max_rows: int) -> LatencyProfile:
    clock = session.busy_clock
    give_up, give_up_anyway = clock() + _MEASURE_SECONDS, time.perf_counter() + MEASURE_WALL_SECONDS
    sizes: list[int] = []
    seconds: list[float] = []
    size = 1
    while True:
        sizes.append(size)
        seconds.append(_fastest(session, {name: np.repeat(value, size, axis=0) for name, value in row.items()}, clock))
        over = clock() + 2 * seconds[-1] > give_up or time.perf_counter() > give_up_anyway
        if size >= max_rows or over or not pays_to_go_on(sizes, seconds):
            return LatencyProfile(tuple(sizes), tuple(seconds))
        size = min(2 * size, max_rows)


def _fastest(session: Session, feeds: Mapping[str, Array], clock: Callable[[], float]) -> float:
    """Seconds of the fastest of a few runs."""
    best = float("inf")
    enough = clock() + _SECONDS_PER_SIZE
    for _ in range(_RUNS_PER_SIZE):
        best = min(best, _seconds_of_run(session, feeds))
        if clock() > enough:
            break
    return best


def _seconds_of_run(session: Session, feeds: Mapping[str, Array]) -> float:
    clock = session.busy_clock
    begin = clock()
    session.run(session.output_names, feeds)
    return clock() - begin
