"""What is sealed opens with the same key as the same secret, and says nothing otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.broker.store.sealing import KEY_FILE, Sealer
from tiercel.core.errors import InvalidSpecError, UnavailableError

VALUE = "hunter2 é\n"


def test_a_value_comes_back_also_after_a_restart_and_is_never_sealed_the_same_way_twice(tmp_path: Path) -> None:
    sealer = Sealer.open(tmp_path)
    sealed = [sealer.seal("ada", "KEY", VALUE) for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert not any(b"hunter2" in each for each in sealed)
    assert [Sealer.open(tmp_path).unseal("ada", "KEY", each) for each in sealed] == [VALUE, VALUE]


def test_the_key_is_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    Sealer.open(tmp_path)
    key = tmp_path / KEY_FILE
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    Sealer.open(tmp_path)
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("tenant", "name"), [("bob", "KEY"), ("ada", "OTHER")])
def test_what_was_moved_to_another_row_does_not_open(tmp_path: Path, tenant: str, name: str) -> None:
    sealer = Sealer.open(tmp_path)
    with pytest.raises(InvalidSpecError, match=f"{name} cannot be opened") as caught:
        sealer.unseal(tenant, name, sealer.seal("ada", "KEY", VALUE))
    assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize("damage", [lambda sealed: sealed[:-1], lambda sealed: b"", lambda sealed: b"\0" + sealed[1:]])
def test_what_is_damaged_or_of_another_key_is_said_to_be_set_again(tmp_path: Path, damage: object) -> None:
    sealed = Sealer.open(tmp_path).seal("ada", "KEY", VALUE)
    with pytest.raises(InvalidSpecError, match="set it again"):
        Sealer.open(tmp_path).unseal("ada", "KEY", damage(sealed))  # type: ignore[operator]
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(InvalidSpecError, match="set it again"):
        Sealer.open(tmp_path).unseal("ada", "KEY", sealed)


def test_a_file_that_is_no_key_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(UnavailableError, match="put back a copy"):
        Sealer.open(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == b"short"
