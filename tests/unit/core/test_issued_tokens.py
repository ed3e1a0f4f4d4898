"""Tokens as they are presented: the right one, and everything that looks like one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError
from tiercel.core.issued_tokens import KIND, LONGEST_SECONDS, IssuedToken, IssuedTokens, validate_token
from tiercel.core.roles import Role
from tiercel.core.tokens import Token, hash_token

DRAWN = Token.draw(KIND)
TEXT = DRAWN.to_text()
ISSUED = IssuedToken(DRAWN.id, "laptop", "alice", Role.VIEWER, 100.0, 200.0, sha256=hash_token(TEXT))


def test_a_token_is_known_again_and_nothing_like_it_is() -> None:
    tokens = IssuedTokens([ISSUED])
    assert tokens.find(TEXT, 150.0) is ISSUED
    other = Token.draw(KIND)
    wrong = [
        "",
        TEXT[:-1],
        TEXT + "0",
        TEXT.swapcase(),
        TEXT.upper(),
        f" {TEXT}",
        f"{TEXT}\n",
        "tcl_" * 10_000,
        other.to_text(),
        # Somebody knows the id, which is no secret, and how checksums are made.
        Token(KIND, DRAWN.id, other.secret).to_text(),
        Token(KIND, DRAWN.id, DRAWN.secret.swapcase()).to_text(),
        Token("key", DRAWN.id, DRAWN.secret).to_text(),
        hash_token(TEXT),
    ]
    assert [text for text in wrong if tokens.find(text, 150.0) is not None] == []


def test_one_that_ran_out_or_was_revoked_is_refused_by_name_without_its_secret() -> None:
    for token, now, words in (
        (ISSUED, 200.0, "ran out on 1970-01-01 00:03 UTC"),
        (replace(ISSUED, revoked_at=120.0), 130.0, "was revoked on 1970-01-01 00:02 UTC"),
        # The clock was set back: what was revoked stays so.
        (replace(ISSUED, revoked_at=120.0), 110.0, "was revoked"),
    ):
        with pytest.raises(NotAuthenticatedError, match=f"'laptop' .* {words}") as refused:
            IssuedTokens([token]).find(TEXT, now)
        assert DRAWN.secret not in refused.value.message
    assert DRAWN.secret not in repr(ISSUED)
    assert ISSUED.sha256 not in repr(ISSUED)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"role": Role.AGENT}, "role"),
        ({"role": Role.OPERATOR}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"seconds": 59.0}, "seconds"),
        ({"seconds": LONGEST_SECONDS + 1}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": float("inf")}, "seconds"),
    ],
)
def test_a_token_that_cannot_be_is_refused(changes: dict[str, object], field: str) -> None:
    wanted = {"name": "laptop", "tenant": "alice", "role": Role.VIEWER, "seconds": 3600.0}
    validate_token(**wanted)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError) as refused:
        validate_token(**{**wanted, **changes})  # type: ignore[arg-type]
    assert refused.value.field == field
