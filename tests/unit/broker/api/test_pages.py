"""Tokens of pages: handed back as they are, refused when somebody made them up."""

from __future__ import annotations

import base64

import pytest

from tiercel.broker.api.pages import MAX_TOKEN_CHARACTERS, place_of, token_of
from tiercel.core.errors import InvalidSpecError


def test_a_token_says_where_the_page_before_ended() -> None:
    for place in ((0.0, "a"), (1_790_000_000.123456, "0123abcd"), (0.1 + 0.2, "")):
        assert place_of(token_of(*place)) == place
    assert place_of("") is None


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "ünïcode",
        "A" * (MAX_TOKEN_CHARACTERS + 1),
        *(base64.urlsafe_b64encode(text).decode() for text in (b"[]", b"{}", b"[1]", b'["a", "b"]', b"[NaN, 1]")),
        base64.urlsafe_b64encode(b"[" * 150).decode(),
    ],
)
def test_a_token_that_nobody_gave_is_refused(token: str) -> None:
    with pytest.raises(InvalidSpecError, match="page_token: is not one that this broker gave"):
        place_of(token)
