"""Who signed in elsewhere is known for as long as the token and its key are good, and no more of them than a bound."""

from __future__ import annotations

import dataclasses

import pytest

from tiercel.core.errors import NotAuthenticatedError
from tiercel.core.people import MOST_REMEMBERED, KnownPeople, Person
from tiercel.core.roles import Role

ANN = Person("oidc:ann", Role.VIEWER, "alice", "key", 100.0)


def known(**tokens: Person) -> KnownPeople:
    people = KnownPeople()
    people.trust({"key", "other"})
    for text, person in tokens.items():
        people.put(text, person)
    return people


def test_a_token_is_known_until_it_runs_out() -> None:
    people = known(token=ANN)
    assert people.find("token", 99.9) == ANN
    assert people.find("tokeN", 99.9) is None
    assert people.find("\ud800", 99.9) is None
    with pytest.raises(NotAuthenticatedError, match="ran out at 1970-01-01 00:01:40 UTC; sign in again"):
        people.find("token", 100.0)


def test_who_is_known_by_a_key_that_counts_no_more_is_forgotten() -> None:
    bob = dataclasses.replace(ANN, id="oidc:bob", key="other")
    people = known(a=ANN, b=bob)
    people.trust({"other"})
    assert people.find("a", 1.0) is None, "verified anew, which fails"
    assert people.find("b", 1.0) == bob
    people.check(bob, 1.0)
    with pytest.raises(NotAuthenticatedError, match="does not vouch any more"):
        people.check(ANN, 1.0)


def test_no_more_are_remembered_than_a_bound_and_whoever_comes_often_stays() -> None:
    people = known(often=ANN)
    for number in range(MOST_REMEMBERED + 10):
        people.put(f"token{number}", ANN)
        assert people.find("often", 1.0) == ANN
    assert len(people._by_digest) == MOST_REMEMBERED
    assert people.find("token0", 1.0) is None


def test_no_token_is_kept() -> None:
    people = known(secretsecret=ANN)
    assert not any(b"secret" in digest for digest in people._by_digest)
