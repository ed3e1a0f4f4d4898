"""Tokens: made once, kept as they are, and only for the operator's eyes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tiercel.broker.tenancy import open_tenancy
from tiercel.core.errors import InvalidSpecError

TOKEN = "0123456789abcdef"


def test_tokens_are_made_at_the_first_start_and_kept(tmp_path: Path) -> None:
    first = open_tenancy(tmp_path, ["alice", "bob"])
    again = open_tenancy(tmp_path, ["alice", "bob"])
    assert first == again
    assert first.tenants["alice"].token != first.tenants["bob"].token
    assert len(first.node_token) >= 32
    for name in ("tenants.toml", "node.token"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.new"))


def test_a_token_finds_its_tenant_and_nobody_else(tmp_path: Path) -> None:
    tenancy = open_tenancy(tmp_path, ["alice", "bob"])
    alice = tenancy.find_tenant(tenancy.tenants["alice"].token)
    assert alice is not None
    assert alice.name == "alice"
    for token in ("", "x", tenancy.node_token, "ünïcode", tenancy.tenants["bob"].token[:-1]):
        assert tenancy.find_tenant(token) is None
    assert tenancy.is_node(tenancy.node_token)
    assert not tenancy.is_node("")
    assert not tenancy.is_node(alice.token)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    tenancy = open_tenancy(tmp_path, ["alice"])
    assert tenancy.tenants["alice"].token not in repr(tenancy)
    assert tenancy.node_token not in repr(tenancy)


def test_a_new_tenant_leaves_what_the_operator_wrote(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    written = f'# mine\n[tenants.alice]\ntoken = "{TOKEN}"\nmax_active_jobs = 3\nnote = "hers"'
    path.write_text(written)
    tenancy = open_tenancy(tmp_path, ["alice", "bob"])
    assert tenancy.tenants["alice"].token == TOKEN
    assert tenancy.tenants["alice"].max_active_jobs == 3
    assert path.read_text().startswith(written)
    assert open_tenancy(tmp_path, []) == tenancy


def test_a_file_that_others_can_read_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(f'[tenants.alice]\ntoken = "{TOKEN}"\n')
    path.chmod(0o644)
    open_tenancy(tmp_path, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("left_behind", [False, True])
def test_a_secret_can_be_read_by_nobody_else_at_any_moment(tmp_path: Path, *, left_behind: bool) -> None:
    """After each line that runs, the modes of all files are looked at; nothing of the program's own closes them."""
    if left_behind:  # by a start that was killed, when others could still read
        for name in ("tenants.toml.new", "node.token.new"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o644)
    seen: dict[str, set[int]] = {}

    def look(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        if frame.f_code.co_filename.endswith(("tenancy.py", "private_files.py")):
            for path in tmp_path.iterdir():
                if path.stat().st_size:
                    seen.setdefault(path.name, set()).add(stat.S_IMODE(path.stat().st_mode))
        return look

    mask, tracing = os.umask(0), sys.gettrace()
    sys.settrace(look)
    try:
        open_tenancy(tmp_path, ["alice"])
    finally:
        sys.settrace(tracing)
        os.umask(mask)
    assert seen.keys() >= {"tenants.toml", "node.token", "tenants.toml.new", "node.token.new"}
    assert {mode for modes in seen.values() for mode in modes} == {0o600}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml", "cannot be understood"),
        ("tenants = 3", "cannot be understood"),
        ("[tenants.alice]\n", "cannot be understood"),
        (f'[tenants.alice]\ntoken = "{TOKEN}"\nmax_active_jobs = "many"', "cannot be understood"),
        (f'[tenants.alice]\ntoken = "{TOKEN}"\nmax_active_jobs = -1', "-1 active jobs"),
        ('[tenants.alice]\ntoken = ""', "no token of 16 characters"),
        ('[tenants.alice]\ntoken = "short"', "no token of 16 characters"),
        (f'[tenants."A b"]\ntoken = "{TOKEN}"', "not a tenant's name"),
        (f'[tenants.a]\ntoken = "{TOKEN}"\n[tenants.b]\ntoken = "{TOKEN}"', "same token to two tenants"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "tenants.toml").write_text(text)
    with pytest.raises(InvalidSpecError, match=words) as caught:
        open_tenancy(tmp_path, [])
    assert TOKEN not in caught.value.message


@pytest.mark.parametrize("name", ["", "Alice", "a/b", "-a", "a" * 64])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSpecError, match="not a tenant's name"):
        open_tenancy(tmp_path, [name])
    assert not (tmp_path / "tenants.toml").exists()


def test_an_empty_node_token_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "node.token").write_text("\n")
    with pytest.raises(InvalidSpecError, match="delete it to get one"):
        open_tenancy(tmp_path, [])


def test_a_tenant_has_a_weight(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(f'[tenants.alice]\ntoken = "{TOKEN}"\nweight = 2.5\n')
    tenants = open_tenancy(tmp_path, ["bob"]).tenants
    assert (tenants["alice"].weight, tenants["bob"].weight) == (2.5, 1.0)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
def test_a_weight_that_is_none_is_refused(tmp_path: Path, weight: str) -> None:
    (tmp_path / "tenants.toml").write_text(f'[tenants.alice]\ntoken = "{TOKEN}"\nweight = {weight}\n')
    with pytest.raises(InvalidSpecError, match="weight"):
        open_tenancy(tmp_path, [])


@pytest.mark.parametrize("name", ["broker", "nodes"])
def test_a_tenant_cannot_have_the_name_of_topics_that_all_may_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"'{name}' is a name that Tiercel keeps for itself"):
        open_tenancy(tmp_path, [name])
    (tmp_path / "tenants.toml").write_text(f'[tenants.{name}]\ntoken = "{TOKEN}"\n')
    with pytest.raises(InvalidSpecError, match="choose another"):
        open_tenancy(tmp_path, [])


def test_priority_classes_are_for_those_whom_they_name_or_for_all(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        '[priority_classes.urgent]\nvalue = 100\ntenants = ["alice"]\n'
        "[priority_classes.later]\nvalue = -10\npreempts = false\n"
    )
    tenancy = open_tenancy(tmp_path, ["alice", "bob"])
    alice, bob = tenancy.tenants["alice"], tenancy.tenants["bob"]
    assert [each.name for each in alice.classes] == ["urgent", "later"]
    assert [each.name for each in bob.classes] == ["later"]
    urgent = alice.class_of("urgent")
    assert (urgent.value, urgent.preempts, bob.class_of("urgent").value) == (100, True, 0)
    assert bob.class_of("later").preempts is False


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("urgent = 3", "give it a value"),
        ('[priority_classes."Very urgent"]\nvalue = 1', "is none"),
        ("[priority_classes.urgent]", "has value None"),
        ("[priority_classes.urgent]\nvalue = true", "has value True"),
        ("[priority_classes.urgent]\nvalue = 2_000_000_000", "give a whole number"),
        ('[priority_classes.urgent]\nvalue = 1\npreempts = "no"', "give true or false"),
        ('[priority_classes.urgent]\nvalue = 1\ntenants = "alice"', "give a list of names"),
    ],
)
def test_a_priority_class_that_makes_no_sense_is_refused(tmp_path: Path, written: str, words: str) -> None:
    text = written if written.startswith("[") else f"[priority_classes]\n{written}"
    (tmp_path / "tenants.toml").write_text(text)
    with pytest.raises(InvalidSpecError, match=words):
        open_tenancy(tmp_path, ["alice"])
