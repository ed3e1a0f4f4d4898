from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.serving.generation.request import GenerationLimits, read_request

LIMITS = GenerationLimits(rows=2, waiting=2, tokens=50, context=100, cache_bytes=10**9, timeout=60.0)


@pytest.mark.parametrize(
    ("said", "left", "seconds"),
    [
        (None, None, 60.0),
        (5_000_000, None, 5.0),
        (None, 2.5, 2.5),
        (5_000_000, 2.5, 2.5),
        (0, 0.0, 0.0),
        (10**12, 70.0, 60.0),
    ],
)
def test_the_shortest_time_counts_and_none_is_none(said: int | None, left: float | None, seconds: float) -> None:
    content = {"input_ids": [1]} | ({} if said is None else {"timeout": said})
    assert read_request(content, "m", "", LIMITS, left).timeout == seconds


def test_what_is_not_said_has_a_default_within_the_limits() -> None:
    request = read_request({"input_ids": [1], "parameters": {"top_k": 3}, "unknown": 1}, "m", "", LIMITS)
    assert (request.tokens, request.sampling.temperature, request.sampling.top_k, request.seed) == (16, 0.0, 3, None)
    few = GenerationLimits(rows=1, waiting=0, tokens=4, context=100, cache_bytes=1, timeout=1.0)
    assert read_request({"input_ids": [1]}, "m", "", few).tokens == 4
    with pytest.raises(InvalidRequestError, match="temperature"):
        read_request({"input_ids": [1], "temperature": float("nan")}, "m", "", LIMITS)
