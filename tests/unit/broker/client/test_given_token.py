"""Which token a client shows, and what a file of one may hold."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.given_token import MAX_FILE_BYTES, ShownToken, given_token
from tiercel.broker.client.options import ClientOptions
from tiercel.core.errors import NotAuthenticatedError


def test_a_token_comes_before_the_file_of_one() -> None:
    assert given_token({}) == given_token({"TIERCEL_TOKEN": "", "TIERCEL_TOKEN_FILE": ""}) == ""
    assert given_token({"TIERCEL_TOKEN_FILE": "/a"}) == Path("/a")
    assert given_token({"TIERCEL_TOKEN_FILE": "/a", "TIERCEL_TOKEN": "b"}) == "b"


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    shown = ShownToken(file)
    assert shown.text() == "one"
    assert not shown.differs_from("one")
    file.write_text("  two  ")
    assert shown.differs_from("one")
    assert shown.text() == "two"
    assert not shown.differs_from("two")
    file.unlink()
    assert not shown.differs_from("two")
    with pytest.raises(
        NotAuthenticatedError, match=r"token cannot be read .No such file or directory.; TIERCEL_TOKEN_FILE"
    ):
        shown.text()
    constant = ShownToken("three")
    assert (constant.text(), constant.differs_from("three")) == ("three", False)


async def test_a_stream_goes_on_with_the_next_token_though_another_call_has_shown_that_already(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    connection = Connection("127.0.0.1:1", file, ClientOptions())

    async def attempt() -> AsyncGenerator[str]:
        yield (token := dict(connection._metadata())["authorization"])
        if token == "Bearer one":
            file.write_text("two")
            connection._metadata()  # of another call
        raise NotAuthenticatedError("the token ran out")

    tokens = connection.resumed(attempt)
    assert [await anext(tokens), await anext(tokens)] == ["Bearer one", "Bearer two"]
    with pytest.raises(NotAuthenticatedError):
        await anext(tokens)
    await connection.close()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a\nb", b"a\r\nx: y", b"\xff", "ä".encode(), b"x" * (MAX_FILE_BYTES + 1)]
)
def test_what_is_no_token_is_not_sent(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(NotAuthenticatedError, match="has no token, which is one line") as refused:
        ShownToken(file).text()
    assert "x: y" not in refused.value.message
