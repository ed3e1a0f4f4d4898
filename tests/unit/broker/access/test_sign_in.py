"""Codes and sessions are few, and last for a while."""

from __future__ import annotations

import pytest

from tiercel.broker.access.sign_in import (
    CODE_SECONDS,
    MOST_CODES_OF_A_TOKEN,
    MOST_SESSIONS,
    MOST_SESSIONS_OF_A_TOKEN,
    SESSION_SECONDS,
    SignIn,
)
from tiercel.core.errors import NotAuthenticatedError


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_code_is_good_once_and_soon() -> None:
    time = Time()
    sign_in = SignIn(time)
    code, ends_at = sign_in.make_code("token")
    assert ends_at == 1000.0 + CODE_SECONDS
    assert sign_in.take_code(code) == "token"
    late, _ = sign_in.make_code("token")
    time.now += CODE_SECONDS
    for gone in (code, late, "", "guessed"):
        with pytest.raises(NotAuthenticatedError, match="tiercel dashboard"):
            sign_in.take_code(gone)


def test_the_oldest_goes_where_one_token_has_too_many() -> None:
    sign_in = SignIn(Time())
    codes = [sign_in.make_code("token")[0] for _ in range(MOST_CODES_OF_A_TOKEN + 1)]
    sessions = [sign_in.open("token") for _ in range(MOST_SESSIONS_OF_A_TOKEN + 1)]
    assert [bool(sign_in.token_of(each)) for each in sessions] == [False, *[True] * MOST_SESSIONS_OF_A_TOKEN]
    with pytest.raises(NotAuthenticatedError):
        sign_in.take_code(codes[0])
    assert sign_in.take_code(codes[1]) == "token"


def test_the_oldest_goes_where_there_are_too_many_and_all_end() -> None:
    time = Time()
    sign_in = SignIn(time)
    sessions = [sign_in.open(f"token {number}") for number in range(MOST_SESSIONS + 1)]
    assert [sign_in.token_of(each) for each in sessions[:2]] == ["", "token 1"]
    sign_in.close(sessions[1])
    assert sign_in.token_of(sessions[1]) == ""
    time.now += SESSION_SECONDS
    assert sign_in.token_of(sessions[-1]) == ""
