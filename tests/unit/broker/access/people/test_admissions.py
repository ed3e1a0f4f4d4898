"""``people.toml``: what it lets in, and what it cannot say."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from tiercel.broker.access.people.admissions import Admission, find_admission, open_admissions
from tiercel.core.errors import InvalidSpecError
from tiercel.core.roles import Role

TENANTS = ("alice", "bob")
ISSUERS = ("https://login.example.org",)
ENTRY = '[[people]]\nclaim = "groups"\nvalue = "ml"\ntenant = "alice"\n'


def read(tmp_path: Path, text: str) -> list[Admission]:
    (tmp_path / "people.toml").write_text(text)
    return open_admissions(tmp_path, TENANTS, ISSUERS)


def test_without_a_file_one_is_made_that_lets_nobody_in_and_whose_example_is_right(tmp_path: Path) -> None:
    assert open_admissions(tmp_path, TENANTS, ISSUERS) == []
    path = tmp_path / "people.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    example = path.read_text().replace("# [[", "[[").replace("\n# ", "\n").partition("[[")[2]
    assert read(tmp_path, "[[" + example.replace("default", "alice")) == [
        Admission(("groups",), "ml-team", "alice", Role.SUBMITTER)
    ]


def test_who_is_given_no_role_may_only_look(tmp_path: Path) -> None:
    assert read(tmp_path, ENTRY) == [Admission(("groups",), "ml", "alice", Role.VIEWER)]


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ({"groups": "ml"}, True),
        ({"groups": ["a", "ml"]}, True),
        ({"groups": "ml-team"}, False),
        ({"groups": ["ml "]}, False),
        ({"groups": [["ml"]]}, False),
        ({"groups": {"ml": True}}, False),
        ({"groups": None}, False),
        ({}, False),
    ],
)
def test_a_claim_is_the_value_or_a_list_with_it(claims: dict[str, Any], *, fits: bool) -> None:
    assert Admission(("groups",), "ml", "alice", Role.VIEWER).fits(claims) is fits


def test_the_first_that_fits_counts_and_claims_may_be_inside_others(tmp_path: Path) -> None:
    nested = '[[people]]\nclaim = ["realm_access", "roles"]\nvalue = "admin"\nrole = "operator"\n'
    admissions = read(tmp_path, nested + ENTRY)
    both = {"realm_access": {"roles": ["admin"]}, "groups": ["ml"]}
    assert [found and found.role for found in (find_admission(admissions, both), find_admission(admissions, {}))] == [
        Role.OPERATOR,
        None,
    ]
    for odd in ("admin", ["roles"], {"roles": 5}, None, {"roles": {"admin": 1}}):
        assert find_admission(admissions, {"realm_access": odd}) is None
    assert find_admission(admissions, {"realm_access.roles": ["admin"], "realm_access roles": "admin"}) is None


def test_an_address_that_was_not_verified_is_nobodys() -> None:
    admission = Admission(("email",), "ann@example.org", "alice", Role.VIEWER)
    assert admission.fits({"email": "ann@example.org", "email_verified": True})
    for verified in (False, None, "true", 1):
        assert not admission.fits({"email": "ann@example.org", "email_verified": verified})
    assert not admission.fits({"email": "ann@example.org"})


def test_the_example_of_the_documents_is_right(tmp_path: Path) -> None:
    text = (Path(__file__).parents[5] / "docs" / "security.md").read_text()
    found = read(tmp_path, text.partition("```toml\n")[2].partition("```")[0])
    assert [(each.claim, each.tenant, each.role) for each in found] == [
        (("groups",), "", Role.OPERATOR),
        (("realm_access", "roles"), "alice", Role.SUBMITTER),
        (("email",), "alice", Role.VIEWER),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("people = 3", "no list"),
        ("people = [3]", "is no table"),
        ("[people]\nclaim = 'a'", "no list"),
        ("[[people]]\n", "has no claim"),
        ("[[people]]\nclaim = []\nvalue = 'x'\ntenant = 'alice'", "has no claim"),
        ("[[people]]\nclaim = ['a', 3]\nvalue = 'x'\ntenant = 'alice'", "has no claim"),
        (ENTRY.replace('"ml"', "true"), "has no value"),
        (ENTRY.replace('"ml"', '""'), "has no value"),
        (ENTRY + 'role = "agent"', "has the role 'agent'; give viewer"),
        (ENTRY + "role = [1]", "has the role"),
        (ENTRY + 'role = "operator"', "an operator has none"),
        (ENTRY.replace('tenant = "alice"', ""), "need a tenant"),
        (ENTRY.replace('"alice"', '["alice"]'), "need a tenant"),
        (ENTRY.replace("alice", "carol"), "tenant 'carol', whom there is not"),
        (ENTRY + 'roles = "operator"', "has 'roles', which means nothing"),
        ("not toml", "cannot be read"),
        ("# " + "x" * 2**20, "more than"),
        (ENTRY * 1001, "up to 1000"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        read(tmp_path, text)


def test_of_several_providers_each_entry_says_whose_tokens_count(tmp_path: Path) -> None:
    mine = f'{ENTRY}issuer = "{ISSUERS[0]}"\n'
    assert read(tmp_path, mine) == [Admission(("groups",), "ml", "alice", Role.VIEWER, ISSUERS[0])]
    issuers = (*ISSUERS, "https://other.example.org")
    assert open_admissions(tmp_path, TENANTS, issuers)[0].issuer == ISSUERS[0]
    (tmp_path / "people.toml").write_text(mine + ENTRY)
    with pytest.raises(
        InvalidSpecError, match=r"entry 2 does not say whose tokens count; give its issuer, one of https"
    ):
        open_admissions(tmp_path, TENANTS, issuers)
    with pytest.raises(InvalidSpecError, match=r"entry 1 is for the provider 'https://x', whom there is not"):
        read(tmp_path, f'{ENTRY}issuer = "https://x"\n')
    with pytest.raises(InvalidSpecError, match=r"entry 1 is for the provider 5"):
        read(tmp_path, f"{ENTRY}issuer = 5\n")
