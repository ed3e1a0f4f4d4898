from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from testing import onnx_models
from tiercel.serving.models.canary.judgement import Comparison
from tiercel.serving.models.canary.shadow import Shadow, compared
from tiercel.serving.runtime.engine import Session
from tiercel.serving.tensors import BF16

NOTHING = Comparison()


class Broken(Session):
    """Fails in a way that is not a session's."""

    def __init__(self) -> None:
        super().__init__(onnx_models.plus(1.0))

    def run(self, outputs: Any, feeds: Any, options: Any = None) -> Any:
        raise MemoryError


def test_scores_agree_where_the_largest_is_the_same() -> None:
    old = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
    new = np.array([[0.2, 0.8], [0.4, 0.6]], np.float32)
    found = compared(NOTHING, [old], [new])
    assert (found.rows, found.agreed, found.failed) == (2, 1, 0)
    assert math.isclose(found.difference, 0.4, rel_tol=1e-6)


def test_whole_numbers_and_words_agree_where_they_are_equal() -> None:
    assert compared(NOTHING, [np.array([[1, 2], [3, 4]])], [np.array([[1, 2], [3, 5]])]) == Comparison(2, 1, 0, 1.0)
    words = np.array([["a"], ["b"]], np.object_)
    assert compared(NOTHING, [words], [np.array([["a"], ["c"]], np.object_)]) == Comparison(2, 1, 0, 0.0)


def test_scores_in_bfloat16_are_scores_too() -> None:
    old = np.array([[0.125, 0.5], [0.5, 0.25]], BF16)
    new = np.array([[0.25, 0.5], [0.25, 0.5]], BF16)
    assert compared(NOTHING, [old], [new]) == Comparison(2, 1, 0, 0.25)


def test_all_outputs_of_a_row_have_to_agree() -> None:
    label, scores = np.array([[1], [2]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    assert compared(NOTHING, [label, scores], [np.array([[1], [3]]), scores]).agreed == 1


def test_the_same_nan_and_infinity_are_no_difference_but_another_one_is() -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]])
    assert compared(NOTHING, [odd], [odd.copy()]).difference == 0.0
    assert compared(NOTHING, [odd], [np.zeros((1, 3))]).difference == math.inf


def test_other_shapes_and_failures_count_against_the_new_version() -> None:
    assert compared(NOTHING, [np.zeros((2, 3))], [np.zeros((2, 4))]) == Comparison(2, 0, 0, math.inf)
    assert compared(Comparison(5, 5), [np.zeros((2, 3))], None) == Comparison(5, 5, 1, 0.0)
    assert compared(NOTHING, [np.zeros((0, 3))], [np.zeros((0, 3))]) == Comparison(0, 0, 0, 0.0)


def test_other_types_count_against_the_new_version_and_comparing_goes_on() -> None:
    words = np.array([["a"], ["b"]], np.object_)
    assert compared(NOTHING, [np.zeros((2, 1), np.float32)], [words]) == Comparison(2, 0, 0, math.inf)
    with ThreadPoolExecutor(1) as threads:
        shadow = Shadow(Broken(), 1.0, threads)
        for _ in range(2):
            shadow(["y"], {}, [np.zeros((1, 1))])
            threads.submit(int).result()
    assert shadow.comparison.failed == 2


class Odd(Session):
    """Gives fewer outputs than were asked for."""

    def __init__(self) -> None:
        super().__init__(onnx_models.plus(1.0))

    def run(self, outputs: Any, feeds: Any, options: Any = None) -> Any:
        return []


def test_what_cannot_be_compared_counts_against_the_new_version_and_comparing_goes_on() -> None:
    with ThreadPoolExecutor(1) as threads:
        shadow = Shadow(Odd(), 1.0, threads)
        for _ in range(2):
            shadow(["y"], {}, [np.zeros((1, 1))])
            threads.submit(int).result()
    assert shadow.comparison == Comparison(0, 0, 2, 0.0)


def test_a_share_of_the_runs_is_done_again_by_the_new_version() -> None:
    old, new = Session(onnx_models.plus(1.0)), Session(onnx_models.plus(1.5))
    with ThreadPoolExecutor(1) as threads:
        shadow = Shadow(new, 0.5, threads)
        old.observer = shadow
        for _ in range(4):
            old.run(["y"], {"x": np.zeros((3, 4), np.float32)})
            threads.submit(int).result()  # what was begun is done
    assert shadow.comparison == Comparison(6, 6, 0, 0.5)


def test_a_run_is_let_go_while_another_is_compared_and_buffers_are_not_held() -> None:
    old, new = Session(onnx_models.plus(1.0)), Session(onnx_models.plus(1.0))
    feed = np.zeros((1, 4), np.float32)
    gate = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(gate.wait)
        shadow = Shadow(new, 1.0, threads)
        old.observer = shadow
        for _ in range(5):
            old.run(["y"], {"x": feed})
        feed[:] = 7.0  # the request's buffer is used again
        gate.set()
    assert shadow.comparison == Comparison(1, 1, 0, 0.0)


def test_a_new_version_that_cannot_run_is_counted() -> None:
    old, new = Session(onnx_models.plus(1.0)), Session(onnx_models.plus(1.0, features=5))
    with ThreadPoolExecutor(1) as threads:
        shadow = Shadow(new, 1.0, threads)
        old.observer = shadow
        old.run(["y"], {"x": np.zeros((1, 4), np.float32)})
    assert shadow.comparison.failed == 1
