"""Join tokens as people carry them."""

from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidSpecError
from tiercel.core.trust.join_token import JoinToken, digest_of

PIN = "p" * 43


def test_a_token_comes_back_from_its_text() -> None:
    token = JoinToken.draw(PIN)
    assert JoinToken.parse(f" {token.to_text()}\n") == token
    assert JoinToken.draw(PIN) != token


def test_a_secret_is_shown_in_the_text_alone() -> None:
    token = JoinToken.draw(PIN)
    assert token.secret not in repr(token)
    assert token.secret not in digest_of(token.secret)
    assert digest_of(token.secret) != digest_of(JoinToken.draw(PIN).secret)


@pytest.mark.parametrize("cut", [0, 3, 44, 60, -1])
def test_half_a_token_is_refused_without_being_repeated(cut: int) -> None:
    text = JoinToken.draw(PIN).to_text()[:cut]
    with pytest.raises(InvalidSpecError, match="no join token") as refused:
        JoinToken.parse(text)
    assert not text or text not in refused.value.message
