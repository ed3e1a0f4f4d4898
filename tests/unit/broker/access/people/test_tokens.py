"""A provider's token is believed for what it is, and nothing that looks like one is."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import RSAKey

from testing.identity_provider import AUDIENCE, IdentityProvider, new_key
from tiercel.broker.access.people.keys import ALGORITHMS, ProviderKey, read_keys
from tiercel.broker.access.people.tokens import (
    CLOCKS_SECONDS,
    LONGEST_SECONDS,
    MAX_CHARACTERS,
    Expected,
    has_form,
    key_id_of,
    subject_of,
    verify,
)
from tiercel.core.errors import NotAuthenticatedError

NOW = int(time.time())
PROVIDER = IdentityProvider(port=1, now=lambda: NOW)
KEY = read_keys(PROVIDER.listed, ("ES256", "RS256"))["first"]
EXPECTED = Expected(PROVIDER.issuer, AUDIENCE)


def check(text: str, *, key: ProviderKey = KEY, now: float = NOW + 1.0) -> Any:
    assert has_form(text)
    key_id_of(text)
    return verify(text, key, EXPECTED, now)


def encoded(said: Any) -> str:
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_a_good_token_says_whose_it_is() -> None:
    claims = check(PROVIDER.token("ann", groups=["ml"], aud=["other", AUDIENCE]))
    assert (subject_of(claims), claims["groups"]) == ("ann", ["ml"])
    assert subject_of(check(PROVIDER.token("ann", header={"typ": "at+jwt", "x5t": "abc", "extra": "word"}))) == "ann"
    assert key_id_of(PROVIDER.token()) == "first"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "https://elsewhere.example"}, "another provider"),
        ({"iss": f"{PROVIDER.issuer}/"}, "another provider"),
        ({"iss": None}, "another provider"),
        ({"iss": [PROVIDER.issuer]}, "another provider"),
        ({"aud": "other"}, "another program"),
        ({"aud": ["other", "Tiercel"]}, "another program"),
        ({"aud": None}, "another program"),
        ({"aud": []}, "another program"),
        ({"aud": {AUDIENCE: True}}, "another program"),
        ({"aud": f"{AUDIENCE}, other"}, "another program"),
        ({"cnf": {"jkt": "abc"}}, "bound to a key of its holder"),
        ({"exp": NOW}, "ran out 1 s ago"),
        ({"exp": None}, "does not say in numbers .* \\(exp\\)"),
        ({"exp": str(NOW + 60)}, "\\(exp\\)"),
        ({"exp": True}, "\\(exp\\)"),
        ({"exp": float("nan")}, "\\(exp\\)"),
        ({"exp": float("inf")}, "\\(exp\\)"),
        ({"exp": 10**300}, "\\(exp\\)"),
        ({"exp": [NOW + 60]}, "\\(exp\\)"),
        ({"iat": None}, "\\(iat\\)"),
        ({"iat": -1}, "\\(iat\\)"),
        ({"iat": NOW + CLOCKS_SECONDS + 9}, "not good yet"),
        ({"nbf": NOW + CLOCKS_SECONDS + 9}, "not good yet"),
        ({"nbf": "soon"}, "\\(nbf\\)"),
        ({"exp": NOW + LONGEST_SECONDS + 9}, "24 h are the most"),
        ({"iat": 0}, "24 h are the most"),
    ],
)
def test_a_token_that_says_something_else_is_refused(claims: dict[str, Any], words: str) -> None:
    with pytest.raises(NotAuthenticatedError, match=words):
        check(PROVIDER.token(**claims))


@pytest.mark.parametrize("subject", [None, "", "x" * 256, "a\nb", "a\x1b[2J", "a\u202eb", 5, ["ann"]])
def test_whose_it_is_can_be_written_down(subject: Any) -> None:
    with pytest.raises(NotAuthenticatedError, match="whose it is"):
        subject_of({"sub": subject})


def test_whoever_signs_with_another_key_is_nobody() -> None:
    with pytest.raises(NotAuthenticatedError, match="not signed by the key"):
        check(PROVIDER.token(key=new_key("first")))


def test_a_token_without_a_signature_is_refused() -> None:
    header, claims, signature = PROVIDER.token().split(".")
    for written in ("none", "None", "NONE", "nOnE", "", None, ["ES256"], {"ES256": 1}, "HS256"):
        unsigned = encoded({"alg": written, "kid": "first", "typ": "JWT"})
        for end in ("", signature):
            with pytest.raises(NotAuthenticatedError):
                check(f"{unsigned}.{claims}.{end}")
    with pytest.raises(NotAuthenticatedError, match="not signed by"):
        check(f"{header}.{claims}.")


@pytest.mark.parametrize("form", ["pem", "der", "json", "x"])
def test_a_public_key_is_nobodys_secret(form: str) -> None:
    public = PROVIDER.key.as_dict(private=False)
    secret = {
        "pem": PROVIDER.key.as_pem(private=False),
        "der": PROVIDER.key.as_der(private=False),
        "json": json.dumps(public).encode(),
        "x": str(public["x"]).encode(),
    }[form]
    for algorithm in ("HS256", "HS384", "HS512"):
        signed = f"{encoded({'alg': algorithm, 'kid': 'first'})}.{encoded(PROVIDER.claims())}"
        # By hand: the library refuses to sign so.
        forged = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), f'sha{algorithm[2:]}'))}"
        with pytest.raises(NotAuthenticatedError, match=f"is signed by '{algorithm}', and its key is good for ES256"):
            check(forged)


def test_an_algorithm_that_the_operator_does_not_allow_is_refused() -> None:
    rsa = RSAKey.generate_key(2048, {"kid": "rsa"})
    key = read_keys([rsa.as_dict(private=False)], ("ES256", "RS256"))["rsa"]
    assert check(PROVIDER.token(key=rsa), key=key)
    for algorithm in ("RS512", "PS256"):
        text = PROVIDER.token(key=rsa, header={"alg": algorithm})
        with pytest.raises(NotAuthenticatedError, match="good for RS256"):
            check(text, key=key)
        assert check(text, key=read_keys([rsa.as_dict(private=False)], ALGORITHMS)["rsa"])
    with pytest.raises(NotAuthenticatedError, match="good for ES256"):
        check(PROVIDER.token(key=rsa))


@pytest.mark.parametrize(
    "header", [{"typ": "logout+jwt"}, {"typ": "secevent+jwt"}, {"typ": 5}, {"crit": ["exp"], "exp": 1}]
)
def test_what_a_provider_signs_for_other_ends_is_refused(header: dict[str, Any]) -> None:
    written = encoded({"alg": "ES256", "kid": "first", **header})
    signed = jws.serialize_compact(
        {"alg": "ES256", "kid": "first"}, json.dumps(PROVIDER.claims()).encode(), PROVIDER.key
    ).split(".")
    with pytest.raises(NotAuthenticatedError, match="for something else"):
        check(".".join([written, *signed[1:]]))


@pytest.mark.parametrize("content", [b"5", b'"text"', b"[1]", b"null", b"{", b"\xff", b"[" * 4000])
def test_what_is_signed_and_no_claims_is_refused(content: bytes) -> None:
    signed = jws.serialize_compact({"alg": "ES256", "kid": "first"}, content, PROVIDER.key)
    with pytest.raises(NotAuthenticatedError):
        check(signed)


@pytest.mark.parametrize(
    "header",
    [5, "text", [1], None, {}, {"alg": "ES256"}, {"alg": "ES256", "kid": 5}, {"alg": "ES256", "kid": ""}, b"[" * 4000],
    ids=lambda header: str(header)[:20],
)
def test_a_header_that_names_no_key_is_refused(header: Any) -> None:
    with pytest.raises(NotAuthenticatedError):
        check(f"{encoded(header)}.e30.AAAA")


def test_a_token_may_only_be_so_long() -> None:
    with pytest.raises(NotAuthenticatedError, match=f"more than {MAX_CHARACTERS} characters"):
        check(PROVIDER.token(groups=["x" * MAX_CHARACTERS]))
    assert check(PROVIDER.token(groups=["x" * 5_200]))


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "a.b.c.d", "a b.c.d", "a.b.c\n", "tcl_access_0_x_y", "ä.b.c"])
def test_what_is_not_of_the_form_is_not_looked_at(text: str) -> None:
    assert not has_form(text)


@given(st.data())
def test_a_token_of_which_anything_is_changed_is_refused(data: st.DataObject) -> None:
    text = PROVIDER.token()
    at = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.text("abcXYZ019-_.", max_size=3))
    changed = text[:at] + piece + text[at + data.draw(st.integers(0, 3)) :]
    if changed == text:
        return
    try:
        if has_form(changed):
            key_id_of(changed)
            assert verify(changed, KEY, EXPECTED, NOW + 1.0) == PROVIDER.claims()
            # The last character has bits that stand for nothing; all others count.
            assert changed[:-1] == text[:-1]
    except NotAuthenticatedError:
        pass
