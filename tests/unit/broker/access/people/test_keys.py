"""Which keys of a provider's list count, whatever it lists."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from testing.identity_provider import new_key
from tiercel.broker.access.people.keys import ALGORITHMS, MOST_KEYS, read_keys

EC = new_key("one").as_dict(private=False)
RSA: dict[str, Any] = {**RSAKey.generate_key(2048, private=False).as_dict(), "kid": "two"}
ALLOWED = ("ES256", "RS256")


def test_each_key_is_good_for_its_own_kind_of_algorithm_alone() -> None:
    found = read_keys([EC, RSA], ALLOWED)
    assert {name: key.algorithms for name, key in found.items()} == {"one": {"ES256"}, "two": {"RS256"}}
    assert read_keys([RSA], ALGORITHMS)["two"].algorithms == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    assert read_keys([{**RSA, "alg": "RS256"}], ALGORITHMS)["two"].algorithms == {"RS256"}
    assert not any(name.startswith("HS") or name == "none" for name in ALGORITHMS)


def test_the_first_of_an_id_counts_and_another_key_under_it_is_another() -> None:
    other = new_key("one").as_dict(private=False)
    both = read_keys([EC, other], ALLOWED)
    assert both["one"].thumbprint == read_keys([{**EC, "x5t": "a"}], ALLOWED)["one"].thumbprint
    assert both["one"].thumbprint != read_keys([other], ALLOWED)["one"].thumbprint


def test_of_a_private_key_nothing_but_its_public_half_is_taken() -> None:
    private = new_key("leaked").as_dict(private=True)
    assert "d" in private
    assert not read_keys([private], ALLOWED)["leaked"].key.is_private


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "key",
        [],
        {},
        {**EC, "kid": None},
        {**EC, "kid": ""},
        {**EC, "kid": "x" * 300},
        {**EC, "use": "enc"},
        {**EC, "key_ops": ["sign"]},
        {**EC, "key_ops": 5},
        {**EC, "alg": "HS256"},
        {**EC, "alg": ["ES256"]},
        {**EC, "alg": "ES384"},
        {**EC, "crv": "P-384"},
        {**EC, "crv": "secp256k1"},
        {**EC, "crv": ["P-256"]},
        {**EC, "x": EC["y"]},
        {**EC, "x": "%"},
        {**EC, "x": ""},
        {**EC, "y": 5},
        {**EC, "kty": "RSA"},
        {**RSA, "n": "AQAB"},
        {**RSA, "n": "B" * 10_000},
        {**RSA, "e": "Ag"},
        {**RSA, "e": "AQ"},
        {**RSA, "e": "_" * 43},
        {**RSA, "kty": "EC"},
        {**OctKey.generate_key(256).as_dict(), "kid": "symmetric"},
    ],
)
def test_what_cannot_be_used_is_left_out(entry: Any) -> None:
    good = new_key("good").as_dict(private=False)
    assert [*read_keys([entry, good], ALLOWED)] == ["good"]


def test_a_small_or_a_huge_key_is_not_believed() -> None:
    small = {**RSA, "n": RSA["n"][:171]}
    huge = {**RSA, "n": RSA["n"] + "B" * 1600}
    assert not read_keys([small, huge], ALLOWED)


@pytest.mark.parametrize("listing", [None, {}, "keys", 5, [EC] * (MOST_KEYS + 1)])
def test_what_is_no_list_or_too_long_a_one_has_no_keys(listing: Any) -> None:
    assert not read_keys(listing, ALLOWED)


def test_a_curve_that_is_not_allowed_has_no_keys() -> None:
    wide = {**ECKey.generate_key("P-384", private=False).as_dict(), "kid": "wide"}
    assert not read_keys([wide], ALLOWED)
    assert read_keys([wide], ["ES384"])["wide"].algorithms == {"ES384"}
