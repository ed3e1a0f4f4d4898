"""Places for calls: how many, of whom, and that they come back."""

from __future__ import annotations

import contextlib

import pytest

from tiercel.broker.api.gate import Places
from tiercel.core.errors import OverloadedError


def test_one_caller_takes_no_more_than_its_places_and_all_together_no_more_than_there_are() -> None:
    places = Places("callers", of_one=2, in_all=3)
    with contextlib.ExitStack() as held:
        held.enter_context(places.taken("a"))
        held.enter_context(places.taken("a"))
        with pytest.raises(OverloadedError, match="callers may have 2 calls at the same time"), places.taken("a"):
            pass
        held.enter_context(places.taken("b"))
        with (
            pytest.raises(OverloadedError, match="callers have 3 calls together, and all are taken"),
            places.taken("c"),
        ):
            pass


def test_a_place_comes_back_however_the_call_ends() -> None:
    places = Places("callers", of_one=1, in_all=1)
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError), places.taken("a"):
            raise ZeroDivisionError
    with places.taken("b"):
        pass
