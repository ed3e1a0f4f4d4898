from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.serving.rest.test_routes import Site
from tiercel.core.errors import NotAllowedError, NotAuthenticatedError, SetupError
from tiercel.serving.operators import Operators, read_operators
from tiercel.serving.rest.messages import json_response

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("given", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", "Bearer é"])
def test_whoever_has_not_the_token_is_refused(given: str | None) -> None:
    with pytest.raises(NotAuthenticatedError, match="Bearer TOKEN"):
        Operators(TOKEN).check(given)


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer   {TOKEN} "])
def test_an_operator_passes(given: str) -> None:
    Operators(TOKEN).check(given)
    Operators(TOKEN).check_files()


def test_without_a_token_everybody_may_operate_but_nobody_send_files() -> None:
    Operators().check(None)
    with pytest.raises(NotAllowedError, match="--operator-token-file"):
        Operators().check_files()


def test_the_token_is_read_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    with pytest.raises(SetupError, match="chmod 600"):
        read_operators(file)
    file.chmod(0o600)
    read_operators(file).check(f"Bearer {TOKEN}")
    read_operators(None).check(None)


@pytest.mark.parametrize("content", ["", "short", "two words of a token", "é" * 20])
def test_files_without_a_fit_token_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(content)
    with pytest.raises(SetupError, match="one token"):
        read_operators(file)
    link = tmp_path / "link"
    link.symlink_to(file)
    for missing in (link, tmp_path / "none"):
        with pytest.raises(SetupError, match="cannot be read"):
            read_operators(missing)


def test_every_post_is_for_operators_unless_it_says_that_it_is_for_all() -> None:
    site = Site(operators=Operators(TOKEN))
    site.routes.add("POST", "/change", lambda *_: json_response({}))
    site.routes.add("POST", "/ask", lambda *_: json_response({}), for_all=True)
    site.routes.add("GET", "/look", lambda *_: json_response({}))
    operator = {"authorization": f"Bearer {TOKEN}".encode()}
    answers = {
        (path, bool(headers)): answer.status
        for path in (b"/change", b"/ask", b"/look", b"/v2/shares")
        for headers in ({}, operator)
        if (answer := site.ask(b"GET" if path == b"/look" else b"POST", path, b"[]", **headers))
    }
    assert answers == {
        (b"/change", False): 401,
        (b"/change", True): 200,
        (b"/ask", False): 200,
        (b"/ask", True): 200,
        (b"/look", False): 200,
        (b"/look", True): 200,
        (b"/v2/shares", False): 401,
        (b"/v2/shares", True): 400,
    }
    refused = site.ask(b"POST", b"/change")
    assert refused is not None
    assert refused.headers == b"WWW-Authenticate: Bearer\r\n"
