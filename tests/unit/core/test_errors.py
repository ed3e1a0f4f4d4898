"""The catalogue is what its drawing says, and what applications rely on."""

from __future__ import annotations

import re

import pytest

from tiercel.core import errors
from tiercel.core.errors import ERRORS, TiercelError
from tiercel.serving.rest.messages import error_response

ROW = re.compile(r"^    [│├└─ ]+(\w+Error) +(\w+) +([A-Z_]+|\(.*?\)) +(\d{3}|-) ", re.MULTILINE)
DRAWN = ROW.findall(errors.__doc__ or "")


def test_the_whole_catalogue_is_drawn() -> None:
    assert [(name, code) for name, code, _, _ in DRAWN] == [(ERRORS[code].__name__, code) for _, code, _, _ in DRAWN]
    assert len(DRAWN) == len(ERRORS)


@pytest.mark.parametrize(("name", "code", "grpc_status", "http_status"), DRAWN)
def test_an_error_has_the_statuses_that_are_drawn(name: str, code: str, grpc_status: str, http_status: str) -> None:
    del name
    if not grpc_status.startswith("("):
        assert ERRORS[code].grpc_status == grpc_status
    if http_status != "-":
        error: TiercelError = ERRORS[code]("what is wrong")
        assert error_response(error).status == int(http_status)


def test_the_error_about_a_field_begins_with_its_name() -> None:
    error = errors.wrong_field("tiers[1].target", "is missing; give a number")
    assert (error.field, error.message) == ("tiers[1].target", "tiers[1].target: is missing; give a number")
