"""What a version is asked is compared with what it was asked at first: no wolf is cried, and a change is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tiercel.serving.drift.features import MOST_FEATURES, Features
from tiercel.serving.drift.watch import FALSE_ALARM, NEW_ROWS, ROWS, InputWatch, bound_of, distances
from tiercel.serving.tensors import BY_NAME, Array, TensorSpec


def spec_of(datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec("x", BY_NAME[datatype], shape)


def watching(spec: TensorSpec, **known: Any) -> InputWatch:
    watch = InputWatch()
    watch.begin({spec.name: spec}, 1.0, Random(7), **known)
    return watch


def ask(watch: InputWatch, rows: Array, begin: float = 0.0) -> dict[str, Any]:
    """Ask with each row in turn, one in ten seconds; returns what is told then."""
    for number, row in enumerate(rows):
        assert watch.due <= begin + 10.0 * number
        watch.take({"x": row[None]}, begin + 10.0 * number)
    told = watch.as_json()
    assert told is not None
    return told


def test_without_a_change_it_cries_wolf_less_than_once_in_ten_thousand_looks() -> None:
    """Of four distributions, also with ties; each stream has a reference of its own, which all of its looks share."""
    draw = np.random.default_rng(11)
    kinds: tuple[Callable[[tuple[int, int]], Any], ...] = (
        draw.standard_normal,
        lambda size: draw.integers(0, 3, size).astype(float),
        draw.standard_cauchy,
        lambda size: np.where(draw.random(size) < 0.01, 1.0, 0.0),
    )
    looks = alarms = 0
    for stream in range(240):
        kind = kinds[stream % len(kinds)]
        reference, rows = np.sort(kind((ROWS, 4)), axis=0), kind((ROWS + 42 * NEW_ROWS, 4))
        for end in range(ROWS, len(rows), NEW_ROWS):
            looks += 1
            alarms += bool(distances(reference, rows[end - ROWS : end]).max() > bound_of(4, FALSE_ALARM))
    assert looks >= 10_000
    assert alarms <= 1


def test_what_is_called_a_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    from scipy.stats import ks_2samp

    draw = np.random.default_rng(3)
    before, after = draw.standard_normal((ROWS, 3)), np.round(draw.standard_normal((ROWS, 3)) + 0.3, 1)
    expected = [ks_2samp(before[:, n], after[:, n]).statistic for n in range(3)]
    assert distances(np.sort(before, axis=0), after).tolist() == pytest.approx(expected)
    # The bound holds the probability that scipy gives, and is not far from it.
    at = ks_2samp(before[:, 0], before[:, 0] + 1).statistic
    assert 0 < at < 1
    d = bound_of(1, 1e-3)
    below, above = (int(part) for part in (ROWS * d - 1, ROWS * d + 1))
    first = np.arange(ROWS, dtype=float)
    assert ks_2samp(first, first + below, method="asymp").pvalue > 1e-3 > ks_2samp(first, first + above).pvalue


def test_a_shift_of_one_number_is_found_and_named_and_its_end_too() -> None:
    draw = np.random.default_rng(5)
    watch = watching(spec_of("FP32", -1, 4))
    told = ask(watch, draw.standard_normal((ROWS // 2, 4)))
    assert (told["rows"], told["reference_rows"], told["drifted"]) == (0, ROWS // 2, False)
    ask(watch, draw.standard_normal((ROWS // 2, 4)), 1e4)
    told = ask(watch, draw.standard_normal((ROWS, 4)), 2e4)
    assert (told["rows"], told["reference_rows"], told["features"], told["drifted"]) == (ROWS, ROWS, 4, False)
    shifted = draw.standard_normal((ROWS, 4))
    shifted[:, 2] += 0.8
    told = ask(watch, shifted, 3e4)
    assert told["drifted"]
    assert told["farthest"][0]["name"] == "x[2]"
    assert told["farthest"][0]["distance"] > told["bound"]
    assert not ask(watch, draw.standard_normal((ROWS, 4)), 4e4)["drifted"]


def test_what_lies_between_alarm_and_calm_changes_nothing() -> None:
    draw = np.random.default_rng(6)
    watch = watching(spec_of("FP32", -1, 1))
    ask(watch, draw.standard_normal((ROWS, 1)))
    assert ask(watch, draw.standard_normal((ROWS, 1)) + 1.0, 1e4)["drifted"]
    between = ask(watch, draw.standard_normal((ROWS, 1)) + 0.25, 2e4)
    assert bound_of(1, 0.05) < between["farthest"][0]["distance"] < between["bound"]
    assert between["drifted"]


KINDS: dict[str, tuple[TensorSpec, Any, Any]] = {
    "image": (
        spec_of("UINT8", -1, 64, 64, 3),
        lambda draw: draw.integers(0, 200, (64, 64, 3)),
        lambda draw: draw.integers(20, 220, (64, 64, 3)),
    ),
    "any length": (
        spec_of("FP32", -1, -1),
        lambda draw: draw.random(draw.integers(5, 50)),
        lambda draw: draw.random(draw.integers(5, 50)) * 1.5,
    ),
    "tokens": (
        spec_of("INT64", -1, 200),
        lambda draw: draw.integers(0, 500, 200),
        lambda draw: draw.integers(0, 500, 200) // 2 * 2,  # as large on average, of half as many kinds
    ),
    "truth": (spec_of("BOOL", -1, 2), lambda draw: draw.random(2) < 0.2, lambda draw: draw.random(2) < 0.6),
    "text": (
        spec_of("BYTES", -1, 1),
        lambda draw: np.array([f"v{draw.integers(9)}"], object),
        lambda draw: np.array([f"w{draw.integers(9)}"], object),
    ),
    "BF16": (spec_of("BF16", -1, 3), lambda draw: draw.random(3), lambda draw: draw.random(3) + 0.5),
    "no number": (spec_of("FP64", 3), lambda draw: draw.random(3), lambda draw: np.array([np.nan, 0.5, np.inf])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_every_kind_are_compared(kind: str) -> None:
    spec, before, after = KINDS[kind]
    draw = np.random.default_rng(9)
    watch, now = watching(spec), 0.0
    for make, expected in ((before, False), (before, False), (after, True)):
        for _ in range(ROWS):
            now += 10
            row = make(draw).astype(spec.data_type.dtype)
            watch.take({"x": row if spec.shape[0] == 3 else row[None]}, now)
        told = watch.as_json()
        assert told is not None
        assert told["drifted"] is expected
        assert all(math.isfinite(each["distance"]) for each in told["farthest"])


def test_what_is_kept_and_looked_at_is_bounded() -> None:
    many = {f"input {n}": TensorSpec(f"input {n}", BY_NAME["FP32"], (-1, 10)) for n in range(100)}
    assert len(Features(many, Random(1)).labels) == 30 <= MOST_FEATURES
    assert (
        Features({"n" * 5000: TensorSpec("n" * 5000, BY_NAME["FP32"], (-1, -1))}, Random(1)).labels[0]
        == "n" * 40 + " mean"
    )
    watch = InputWatch()
    watch.begin({}, 1.0, Random(1))
    assert (watch.due, watch.as_json()) == (math.inf, None)
    watch = watching(spec_of("FP32", -1, -1))
    watch.take({"x": np.zeros((0, 4), np.float32)}, 0.0)
    watch.take({"x": np.zeros((2, 0), np.float32)}, 10.0)
    assert watch.as_json() is None
    watch.take({"x": np.zeros((1, 10_000_000), np.float32)}, 20.0)
    assert watch._recent.nbytes <= ROWS * MOST_FEATURES * 8


def test_the_reference_is_kept_and_taken_again_unless_it_is_of_something_else() -> None:
    draw = np.random.default_rng(2)
    kept: list[dict[str, Any]] = []
    watch = watching(spec_of("FP32", -1, 2), keep=kept.append)
    ask(watch, draw.standard_normal((2 * ROWS, 2)))
    (reference,) = kept
    as_read = {"labels": list(reference["labels"]), "rows": reference["rows"]}
    again = watching(spec_of("FP32", -1, 2), known=as_read)
    assert ask(again, draw.standard_normal((ROWS, 2)) + 1.0)["drifted"], "a restart makes nothing usual"
    for other in (
        {},
        {"labels": ["x"]},
        {**as_read, "rows": [[1.0, 2.0]]},
        {**as_read, "rows": [["a"]]},
        {**as_read, "rows": None},
    ):
        assert ask(watching(spec_of("FP32", -1, 2), known=other), draw.standard_normal((9, 2)))["reference_rows"] == 9
