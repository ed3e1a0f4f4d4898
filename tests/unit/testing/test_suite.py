"""The lanes of the suite: each test file is in one of them, and in one only."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from testing.suite import COMPUTING, ROOT, failure_of, lanes


def test_the_lanes_have_all_folders_of_tests_between_them() -> None:
    product, computing = lanes(2)
    ignored = {argument.partition("=")[2] for argument in product.arguments}
    given = {argument for argument in computing.arguments if not argument.startswith("-")}
    assert ignored == given == set(COMPUTING)
    assert all((ROOT / folder).is_dir() for folder in COMPUTING)
    assert product.cache != computing.cache


@pytest.mark.parametrize("bad", [2, 5, -signal.SIGKILL])
def test_a_lane_that_could_not_run_or_was_killed_is_a_failure(bad: int, tmp_path: Path) -> None:
    assert failure_of([0, bad], [tmp_path], tmp_path) == bad
    assert failure_of([bad, 1], [tmp_path], tmp_path) == bad
    assert failure_of([0, 0], [tmp_path], tmp_path) == 0
    assert failure_of([0, 1], [tmp_path], tmp_path) == 1, "nothing says which tests those were"
