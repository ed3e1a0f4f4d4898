"""The state directory: closed to others at every start, and refused in a sentence where it is of no use."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from testing.small_disk import small_disk
from tiercel.broker.state_folder import prepare_state_dir
from tiercel.broker.state_lock import broker_lock, up_lock
from tiercel.core.errors import InvalidSpecError
from tiercel.core.locks import is_held


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_that_was_open_to_others_is_closed_with_the_files_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "logs").mkdir(parents=True)
    (folder / "agent").mkdir()
    (tmp_path / "elsewhere").write_text("meant for all")
    (tmp_path / "elsewhere").chmod(0o644)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    names = ("tenants.toml", "node.token", "broker.sqlite", "broker.sqlite-wal", "broker.sqlite.0002.backup")
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(0o664)
    for open_folder in (folder, folder / "logs"):
        open_folder.chmod(0o777)
    for _ in range(2):
        prepare_state_dir(folder)
        assert (mode(folder), mode(folder / "logs")) == (0o700, 0o700)
        assert {mode(folder / name) for name in names} == {0o600}
        assert mode(tmp_path / "elsewhere") == 0o644


def test_a_new_folder_is_its_owners_only(tmp_path: Path) -> None:
    prepare_state_dir(tmp_path / "a" / "state")
    assert mode(tmp_path / "a" / "state") == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 54_321)
    with pytest.raises(InvalidSpecError, match=rf"state_dir: {tmp_path} cannot be used \(it belongs to .+\); choose"):
        prepare_state_dir(tmp_path)


def test_a_plain_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    for path in (plain, plain / "inside"):
        with (
            pytest.raises(InvalidSpecError, match=r"cannot be used \(it is not a folder\)"),
            up_lock(path / "up.lock"),
        ):
            pass
        assert not is_held(path / "up.lock"), "nor does 'down' stumble over it"


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 * 1024, "nr_inodes=2") as disk:
        (disk / "only").touch()
        with (
            pytest.raises(InvalidSpecError, match=r"cannot be used \(No space left on device\)"),
            up_lock(disk / "l"),
        ):
            pass
        with pytest.raises(InvalidSpecError, match=r"cannot be used \(No space left on device\)"), broker_lock(disk):
            pass
