"""The form of tokens: what was cut, mistyped, or is of another kind is none."""

from __future__ import annotations

import re

import pytest

from tiercel.core.tokens import MAX_TOKEN_CHARACTERS, Token, hash_token, parse_token


def test_a_drawn_token_is_read_again() -> None:
    token = Token.draw("key")
    assert parse_token(token.to_text(), "key") == token
    assert re.fullmatch(r"\w{73}", token.to_text()), "a double click has to select all of it"


def test_two_tokens_share_neither_name_nor_secret() -> None:
    one, other = Token.draw("key"), Token.draw("key")
    assert one.id != other.id
    assert one.secret != other.secret
    assert hash_token(one.to_text()) != hash_token(other.to_text())


def test_its_secret_is_not_in_what_logs_would_show() -> None:
    token = Token.draw("key")
    assert token.secret not in repr(token)


@pytest.mark.parametrize("kind", ["k", "abcdefghijkl"])
def test_the_longest_kind_fits(kind: str) -> None:
    text = Token.draw(kind).to_text()
    assert len(text) <= MAX_TOKEN_CHARACTERS
    assert parse_token(text, kind) is not None


def test_what_is_no_token_of_the_kind_is_none() -> None:
    text = Token.draw("key").to_text()
    last = "0" if text[-1] != "0" else "1"
    for wrong in ("", text[:-1], text + "0", text[:-1] + last, " " + text, text.upper(), "tcl_key", text * 1000):
        assert parse_token(wrong, "key") is None, wrong[:100]
    assert parse_token(text, "user") is None


def test_a_mistyped_character_is_noticed() -> None:
    text = Token.draw("key").to_text()
    at = text.index("_", 8) + 5
    other = "a" if text[at] != "a" else "b"
    assert parse_token(text[:at] + other + text[at + 1 :], "key") is None
