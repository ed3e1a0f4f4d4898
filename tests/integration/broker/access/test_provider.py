"""A provider is asked over real HTTP, and whatever it answers costs no more than a bound."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from testing.free_ports import free_port
from testing.identity_provider import ABOUT, KEYS, IdentityProvider, hang, identity_provider
from tiercel.broker.access.people.provider import Provider
from tiercel.broker.access.people.site import MAX_DOCUMENT_BYTES, ProviderSite
from tiercel.broker.trust.authority import Authority
from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.trust.certificates import to_pem

ALLOWED = ("ES256", "RS256")


async def fetch(provider: IdentityProvider) -> list[str]:
    return [*await Provider(provider.issuer, ALLOWED).fetch_keys()]


def answer(**response: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def say(_: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    return say


async def without_end(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def one_byte_a_second(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


async def test_its_keys_are_found_by_what_it_says_of_itself() -> None:
    async with identity_provider() as provider:
        assert await fetch(provider) == ["first"]
        assert provider.asked == {ABOUT: 1, KEYS: 1}


@pytest.mark.parametrize("path", [ABOUT, KEYS])
@pytest.mark.parametrize(
    ("does", "words"),
    [
        (answer(status=500), "answered 500"),
        (answer(status=404), "answered 404"),
        (answer(status=204), "answered 204"),
        (answer(text="<html>"), "no JSON"),
        (answer(text="[1]"), "no JSON object"),
        (answer(text="[" * 100_000), "no JSON"),
        (answer(body=b"\xff\xfe\xff"), "no JSON"),
        (answer(text="{}" + " " * MAX_DOCUMENT_BYTES), "more than 262144 bytes"),
        (answer(body=gzip.compress(b" " * 2**24), headers={"Content-Encoding": "gzip"}), "compressed"),
        (without_end, "more than 262144 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_used_is_refused_in_a_sentence(path: str, does: Any, words: str) -> None:
    async with identity_provider() as provider:
        provider.answers[path] = does
        with pytest.raises(UnavailableError, match=f"^the provider .*{words}"):
            await fetch(provider)


@pytest.mark.parametrize("path", [ABOUT, KEYS])
async def test_nobody_is_asked_to_whom_it_points(path: str) -> None:
    async with identity_provider() as provider, identity_provider() as other:
        other.about = {"issuer": provider.issuer}
        provider.answers[path] = answer(status=302, headers={"Location": f"{other.issuer}{path}"})
        with pytest.raises(UnavailableError, match=r"answered 302 .* no redirect"):
            await fetch(provider)
        assert not other.asked


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"issuer": "https://elsewhere.example"}, "says that its issuer is 'https://elsewhere.example'"),
        ({"issuer": None}, "says that its issuer is 'None'"),
        ({"jwks_uri": None}, "jwks_uri.* is missing"),
        ({"jwks_uri": 5}, "jwks_uri.* is missing"),
        ({"jwks_uri": "file:///etc/passwd"}, "no https:// URL"),
        ({"jwks_uri": "http://192.0.2.1/keys"}, "not encrypted"),
        ({"jwks_uri": "http://localhost.example.org/keys"}, "not encrypted"),
        ({"jwks_uri": "http://127.0.0.1@192.0.2.1/keys"}, "more than a host"),
        ({"jwks_uri": "http://[::1/keys"}, "no URL"),
    ],
)
async def test_an_address_that_may_not_be_asked_is_not(about: dict[str, Any], words: str) -> None:
    async with identity_provider() as provider:
        provider.about = about
        with pytest.raises(UnavailableError, match=words):
            await fetch(provider)
        assert provider.asked == {ABOUT: 1}


async def test_an_encrypted_provider_does_not_name_one_in_the_clear() -> None:
    async with ProviderSite("https://login.example.org").asking() as asking:
        with pytest.raises(UnavailableError, match="is not encrypted"):
            asking.address_in({"jwks_uri": "http://127.0.0.1:1/keys"}, "jwks_uri")


@pytest.mark.parametrize("path", [ABOUT, KEYS])
@pytest.mark.parametrize("does", [hang, one_byte_a_second])
async def test_who_answers_slowly_is_given_up(path: str, does: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiercel.broker.access.people.site.FETCH_SECONDS", 0.3)
    async with identity_provider() as provider:
        provider.answers[path] = does
        with pytest.raises(UnavailableError, match="did not answer within"):
            await fetch(provider)


async def test_nobody_there_is_a_sentence_too() -> None:
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await Provider(f"http://127.0.0.1:{free_port()}", ALLOWED).fetch_keys()


async def test_a_list_without_a_key_that_can_be_used_is_none() -> None:
    async with identity_provider() as provider:
        lists: list[list[Any]] = [[{}], [{"kty": "oct", "kid": "a", "k": "AAAA"}], provider.listed * 101]
        for listed in lists:
            provider.listed = listed
            with pytest.raises(UnavailableError, match="lists no key that can be used"):
                await fetch(provider)


@pytest.mark.parametrize(
    "issuer",
    [
        "login.example.org",
        "ftp://login.example.org",
        "https://",
        "http://login.example.org",
        "http://10.0.0.5:8080",
        "https://user:secret@login.example.org",
        "https://login.example.org/?a=b",
        "https://login.example.org/#a",
        "https://login.example.org:port",
        "https://login.exämple.org",
        "https://login.example.org/\n",
    ],
)
def test_an_issuer_that_cannot_be_one_is_refused_at_the_start(issuer: str) -> None:
    with pytest.raises(InvalidSpecError, match="oidc_issuer"):
        Provider(issuer, ALLOWED)


async def test_a_name_that_cannot_be_one_is_a_sentence_too() -> None:
    async with identity_provider() as provider:
        for host in ("a" * 64 + ".example", "a..example", "%00", "[::1%25lo]"):
            provider.about = {"jwks_uri": f"https://{host}/keys"}
            with pytest.raises(UnavailableError, match=r"^the provider "):
                await fetch(provider)


async def test_by_https_it_is_known_by_an_authority_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, file, trusted = Authority.create(datetime.now(UTC)), tmp_path / "provider.pem", tmp_path / "ca.pem"
    for name, words in (("127.0.0.1", ""), ("127.0.0.2", "CERTIFICATE_VERIFY_FAILED")):
        file.write_bytes(authority.issue_to_broker([name], datetime.now(UTC)).to_file())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        async with identity_provider(context) as provider:
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
            with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
                await fetch(provider)
            trusted.write_bytes(to_pem(authority.certificate))
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            if words:
                with pytest.raises(UnavailableError, match=words):
                    await fetch(provider)
            else:
                assert await fetch(provider) == ["first"]
