from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.errors import InferenceFailedError
from tiercel.serving.generation.sampling import GREEDY, Sampling, next_token

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def drawn(sampling: Sampling, count: int = 2000) -> dict[int, float]:
    chances = np.random.default_rng(0).random(count)
    counts = Counter(next_token(LOGITS, sampling, chance) for chance in chances)
    return {token: number / count for token, number in sorted(counts.items())}


def test_the_likeliest_is_taken_at_temperature_0() -> None:
    assert next_token(LOGITS, GREEDY, 0.99) == 1
    assert next_token(np.array([1.0, 1.0]), GREEDY, 0.99) == 0


def test_tokens_come_as_often_as_they_are_likely() -> None:
    assert drawn(Sampling(1.0)) == pytest.approx({0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}, abs=0.04)
    squared = np.array([0.01, 0.16, 0.04, 0.09]) / 0.3
    assert drawn(Sampling(0.5)) == pytest.approx(dict(enumerate(squared)), abs=0.04)


def test_the_unlikely_are_left_out() -> None:
    assert drawn(Sampling(1.0, top_k=2)) == pytest.approx({1: 4 / 7, 3: 3 / 7}, abs=0.04)
    assert drawn(Sampling(1.0, top_p=0.65)) == pytest.approx({1: 4 / 7, 3: 3 / 7}, abs=0.04)
    assert set(drawn(Sampling(1.0, top_p=1e-9))) == {1}
    assert set(drawn(Sampling(1e-9))) == {1}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_fail(value: float) -> None:
    for logits in (np.array([0.0, value]), np.full(3, -np.inf)):
        with pytest.raises(InferenceFailedError, match="no numbers"):
            next_token(logits, Sampling(1.0), 0.5)


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20),
    st.floats(0.0, 100.0),
    st.integers(0, 30),
    st.floats(0.0, 1.0, exclude_min=True),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_there_is_always_a_token(
    logits: list[float], temperature: float, top_k: int, top_p: float, chance: float
) -> None:
    found = next_token(np.array(logits, np.float32), Sampling(temperature, top_k, top_p), chance)
    assert 0 <= found < len(logits)
