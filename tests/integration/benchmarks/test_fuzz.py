from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.fuzz.in_process import PROTOCOLS, fuzz
from benchmarks.fuzz.mutation import Case
from benchmarks.fuzz.requests import get


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_mutated_requests_are_refused_in_the_form_of_the_protocol_and_leave_nothing(
    protocol: str, tmp_path: Path
) -> None:
    found = fuzz(PROTOCOLS[protocol], protocol, 3000, 11, tmp_path)
    assert found.cases == {}
    assert found.requests == 3000


def unexpected(_: random.Random) -> Case:
    return Case(get(b"/v2/health/live"), frozenset({404}))


def test_another_status_than_the_one_that_is_due_is_a_finding(tmp_path: Path) -> None:
    found = fuzz(unexpected, "rest", 10, 0, tmp_path)
    assert [count for _, count in found.cases.values()] == [10]
