"""Two things at once give what they give one after the other, and raise what they raise."""

from __future__ import annotations

import os

import pytest

from tiercel.broker.what_if.beside import both


def test_one_of_them_is_worked_out_by_another_process() -> None:
    first, second = both(os.getpid, os.getpid)
    assert second == os.getpid() != first


def test_much_is_told_without_a_standstill() -> None:
    first, second = both(lambda: "a" * 10_000_000, lambda: "b")
    assert (len(first), second) == (10_000_000, "b")


def refuses() -> str:
    raise ValueError("not like this")


def test_what_either_raises_is_raised() -> None:
    for first, second in ((refuses, lambda: "b"), (lambda: "a", refuses)):
        with pytest.raises(ValueError, match="not like this"):
            both(first, second)


def test_a_process_that_is_killed_is_stood_in_for() -> None:
    here = os.getpid()

    def dies_elsewhere() -> str:
        if os.getpid() != here:
            os.kill(os.getpid(), 9)
        return "a"

    assert both(dies_elsewhere, lambda: "b") == ("a", "b")
