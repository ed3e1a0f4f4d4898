"""``tiercel login``: a person signs in at a stand-in provider by a code, and the token is kept fresh."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from testing.brokers import running_broker
from testing.identity_provider import AUDIENCE, IdentityProvider, identity_provider
from tiercel.broker.cli import app
from tiercel.broker.cli.login.command import keep_fresh
from tiercel.broker.cli.login.device import LONGEST_PAUSE_SECONDS, LONGEST_SECONDS, DeviceSignIn, SignedIn
from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError, UnavailableError

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass
class Person:
    """Signs in at a provider; what is asked of the provider meanwhile.

    Attributes:
        provider: Where.
        answers: What it says when it is asked for a token, in this order; the last again and again.
        code: What it says when it is asked for a code.
        forms: What it was sent.
        slept: How long was waited between.
    """

    provider: IdentityProvider
    answers: list[dict[str, Any] | int] = field(default_factory=list)
    code: dict[str, Any] = field(default_factory=dict)
    forms: list[dict[str, str]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        issuer = self.provider.issuer
        self.provider.about = {"device_authorization_endpoint": f"{issuer}/device", "token_endpoint": f"{issuer}/token"}
        self.provider.answers = {"/device": self.give_code, "/token": self.give_token}
        self.code = {
            "device_code": "d" * 40,
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{issuer}/enter",
            "expires_in": 60,
            "interval": 5,
        }

    async def give_code(self, request: web.Request) -> web.StreamResponse:
        self.forms.append({key: str(value) for key, value in (await request.post()).items()})
        return web.json_response(self.code, status=400 if "error" in self.code else 200)

    async def give_token(self, request: web.Request) -> web.StreamResponse:
        self.forms.append({key: str(value) for key, value in (await request.post()).items()})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.json_response(answer, status=400 if "error" in answer else 200)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def sign_in(self) -> DeviceSignIn:
        return DeviceSignIn(self.provider.issuer, AUDIENCE, "openid", self.sleep, lambda: self.now)


@contextlib.asynccontextmanager
async def person() -> AsyncIterator[Person]:
    async with identity_provider() as provider:
        yield Person(provider)


def error(word: Any, **more: Any) -> dict[str, Any]:
    return {"error": word, **more}


async def test_the_provider_is_asked_as_often_as_it_says_until_the_person_has_signed_in() -> None:
    async with person() as ann:
        token = ann.provider.token("ann")
        pending = error("authorization_pending")
        ann.answers = [pending, error("slow_down"), pending, 500, {"id_token": token, "refresh_token": "again"}]
        sign_in = ann.sign_in()
        invitation = await sign_in.invite()
        assert (invitation.address, invitation.code) == (f"{ann.provider.issuer}/enter", "ABCD-EFGH")
        found = await sign_in.wait(invitation)
        assert (found.token, found.renewal) == (token, "again")
        assert ann.slept == [5, 5, 10, 10, 20]
        assert ann.forms[0] == {"client_id": AUDIENCE, "scope": "openid"}
        assert ann.forms[1] == {"client_id": AUDIENCE, "grant_type": DEVICE, "device_code": "d" * 40}
        assert token not in repr(found)
        ann.answers = [{"id_token": token}]
        assert (await sign_in.renew(found)).renewal == "again"
        assert ann.forms[-1] == {"client_id": AUDIENCE, "grant_type": "refresh_token", "refresh_token": "again"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error("access_denied", error_description="Ann may not"), "not signed in: access_denied, Ann may not"),
        (error("expired_token"), "not signed in: expired_token"),
        (error("evil\x1b[2J", error_description="\x07" * 9), "not signed in: without a reason"),
        (error(5), "not signed in: without a reason"),
        ({}, "no token that says who you are"),
        ({"id_token": "x"}, "no token that says who you are"),
        ({"id_token": "a.b.c" * 2000}, "no token that says who you are"),
        ({"id_token": "a.b.c"}, "until when it is good"),
        ({"id_token": "a.e30.c"}, "until when it is good"),
        (error("authorization_pending"), "nobody signed in with the code within 1 minute"),
        (500, "nobody signed in with the code within 1 minute"),
        (302, "nobody signed in with the code within 1 minute"),
    ],
)
async def test_who_is_not_signed_in_is_told_why(answer: Any, words: str) -> None:
    async with person() as ann:
        ann.answers = [answer]
        sign_in = ann.sign_in()
        with pytest.raises(NotAuthenticatedError, match=words) as refused:
            await sign_in.wait(await sign_in.invite())
        assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    "code",
    [
        error("unauthorized_client"),
        {"verification_uri": "http://192.0.2.1/enter"},
        {"verification_uri": "https://evil\x1b[2J.example"},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": None},
        {"user_code": "A\nB"},
        {"user_code": "A" * 100},
        {"user_code": ""},
        {"device_code": 5},
    ],
)
async def test_a_code_that_cannot_be_shown_is_refused(code: dict[str, Any]) -> None:
    async with person() as ann:
        ann.code |= code
        with pytest.raises(
            UnavailableError, match=r"the provider( gives no code: unauthorized_client|'s answer has no)"
        ):
            await ann.sign_in().invite()


@pytest.mark.parametrize("odd", [-5, 0, 1e300, float("nan"), "5", True, None, [5]])
async def test_however_long_it_says_nobody_waits_for_ever_or_asks_without_a_pause(odd: Any) -> None:
    async with person() as ann:
        ann.code |= {"interval": odd, "expires_in": odd}
        invitation = await ann.sign_in().invite()
        assert 1.0 <= invitation.pause_seconds <= LONGEST_PAUSE_SECONDS
        assert 0.0 < invitation.seconds <= LONGEST_SECONDS


async def test_the_file_has_the_next_token_before_the_one_in_it_runs_out(tmp_path: Path) -> None:
    async with person() as ann:
        file, sign_in = tmp_path / "token", ann.sign_in()
        tokens = [ann.provider.token("ann", exp=600.0 + 300 * number, iat=1, n=number) for number in range(2)]
        ann.answers = [500, {"id_token": tokens[0]}, {"id_token": tokens[1]}, error("invalid_grant")]
        with pytest.raises(NotAuthenticatedError, match="cannot be renewed, sign in again: invalid_grant"):
            await keep_fresh(sign_in, SignedIn("", "again", 300.0), file, ann.sleep, lambda: ann.now)
        # At two thirds of what is left each time.
        assert [round(seconds) for seconds in ann.slept] == [200, 67, 222, 274]
        assert file.read_text() == f"{tokens[1]}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with pytest.raises(InvalidSpecError, match="nothing to renew"):
            await keep_fresh(sign_in, SignedIn("", "", 300.0), file)
        ann.answers = [{"id_token": tokens[0]}]
        with pytest.raises(InvalidSpecError, match="cannot be written"):
            await keep_fresh(sign_in, SignedIn("", "a", 0.0), tmp_path / "no" / "file", ann.sleep, lambda: ann.now)


def test_a_person_signs_in_and_the_next_command_knows_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "people.toml").write_text('[[people]]\nclaim = "sub"\nvalue = "ann"\ntenant = "alice"\n')
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)
    monkeypatch.setenv("TIERCEL_TOKEN_FILE", str(tmp_path / "token"))

    async def commands() -> None:
        async with person() as ann:
            ann.code["interval"] = 1
            ann.answers = [{"id_token": ann.provider.token("ann")}]
            issuer = ann.provider.issuer

            async def run(*words: str) -> Any:
                result = await asyncio.to_thread(CliRunner().invoke, app, words)
                assert result.exit_code == 0, result.stderr
                return result

            said = await run("login", "--issuer", issuer, "--client-id", AUDIENCE)
            assert f"Open {issuer}/enter and enter the code ABCD-EFGH" in said.stderr
            async with running_broker(tmp_path, oidc_issuer=issuer, oidc_audience=AUDIENCE) as broker:
                (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))
                assert json.loads((await run("ls", "--json", "--state-dir", str(tmp_path))).stdout) == []

    asyncio.run(commands())
