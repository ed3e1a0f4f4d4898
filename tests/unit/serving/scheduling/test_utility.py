from __future__ import annotations

import math

import numpy as np
import pytest

from tiercel.serving.scheduling.utility import FORMS, Form, Utility, utility


@pytest.mark.parametrize(
    ("form", "delay", "worth"),
    [
        ("deadline", 0.1, 0.8),
        ("deadline", 0.1001, 0.0),
        ("soft", 0.1, 0.8),
        ("soft", 0.15, 0.8 * math.exp(-1.0)),
        ("linear", 0.0, 0.8),
        ("linear", 0.1, 0.3),
        ("linear", 0.3, -0.7),
    ],
)
def test_an_answer_is_worth_what_its_formula_says(form: Form, delay: float, worth: float) -> None:
    assert utility(form).value(0.8, delay, 0.1) == pytest.approx(worth)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_are_worth_the_same_as_single_answers(form: Form) -> None:
    delays = np.array([0.01, 0.1, 0.14, 0.5])
    expected = [Utility(form, 1.5).value(0.9, float(delay), 0.1) for delay in delays]
    np.testing.assert_allclose(Utility(form, 1.5).values(0.9, delays, 0.1), expected)


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_after_the_last_useful_moment_is_worth_nothing_to_speak_of(form: Form) -> None:
    function = utility(form)
    last = function.useless_after(0.9, 0.1)
    assert function.value(0.9, last * 1.001, 0.1) < 0.05
    assert function.value(0.9, last * 0.9, 0.1) > 0.0
