from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from testing.needs import need
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.errors import RunFailedError, TransferError

SCRIPT = ScriptFile("train.py", b"print('hello')")


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "jobs" / "job")


def test_a_fresh_folder(folder: JobFolder) -> None:
    folder.prepare(token="secret", script=SCRIPT, owner=None)
    path = folder.path
    assert sorted(p.name for p in path.iterdir()) == ["checkpoints", "exports", "program", "token", "work"]
    assert (path / "token").read_text() == "secret\n"
    assert (path / "token").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "program" / "train.py").read_bytes() == SCRIPT.content


def test_the_next_attempt_keeps_checkpoints_and_gets_a_token_and_a_program_of_its_own(folder: JobFolder) -> None:
    folder.prepare(token="one", script=SCRIPT, owner=None)
    (folder.path / "checkpoints" / "last").touch()
    (folder.path / "program" / "leftover.py").touch()
    folder.prepare(token="two", script=ScriptFile("other.py", b""), owner=None)
    assert (folder.path / "checkpoints" / "last").exists()
    assert (folder.path / "token").read_text() == "two\n"
    assert [p.name for p in (folder.path / "program").iterdir()] == ["other.py"]


def test_a_run_knows_whether_an_earlier_one_left_a_checkpoint(folder: JobFolder, tmp_path: Path) -> None:
    folder.prepare(token="one", script=SCRIPT, owner=None)
    assert not folder.has_checkpoint()
    (folder.path / "checkpoints" / "link").symlink_to(tmp_path)
    (folder.path / "checkpoints" / ".partial").touch()
    assert not folder.has_checkpoint()
    (folder.path / "checkpoints" / "last").touch()
    assert folder.has_checkpoint()


def test_traps_that_an_earlier_run_set_are_not_stepped_into(folder: JobFolder, tmp_path: Path) -> None:
    folder.prepare(token="one", script=SCRIPT, owner=None)
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "token").write_text("untouched")
    path = folder.path
    for name in ("exports", "work", "checkpoints"):
        (path / name).rmdir()
        (path / name).symlink_to(victim)
    (path / "program" / "train.py").unlink()
    (path / "program").rmdir()
    (path / "program").symlink_to(victim)
    (path / "token").unlink()
    (path / "token").symlink_to(victim / "token")
    (path / "agent.sock").mkdir()
    folder.prepare(token="two", script=SCRIPT, owner=None)
    folder.remove_socket()
    assert sorted(p.name for p in victim.iterdir()) == ["token"]
    assert (victim / "token").read_text() == "untouched"
    assert victim.stat().st_mode & 0o777 == 0o755
    assert not any(p.is_symlink() for p in path.iterdir())
    assert not (path / "agent.sock").exists()


def test_a_run_under_another_user_can_use_the_folder_but_not_replace_its_parts(folder: JobFolder) -> None:
    need(os.geteuid() == 0, "root, who alone may give files away")
    folder.prepare(token="one", script=SCRIPT, owner=(65532, 65532))
    path = folder.path
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o755)
    for name in ("exports", "work", "checkpoints", "token"):
        assert (path / name).stat().st_uid == 65532
    assert (path / "program").stat().st_uid == 0
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path / "agent.sock"))
    folder.give_socket((65532, 65532))
    assert (path / "agent.sock").stat().st_uid == 65532


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "jobs").touch()
    with pytest.raises(RunFailedError, match="The folder of the job cannot be prepared"):
        JobFolder(tmp_path / "jobs" / "job").prepare(token="t", script=None, owner=None)


def test_exports_that_are_over_are_removed(folder: JobFolder) -> None:
    folder.prepare(token="t", script=None, owner=None)
    (folder.path / "exports" / "d").mkdir()
    (folder.path / "exports" / "d" / "model.onnx").touch()
    folder.remove_export("d")
    folder.remove_export("d")
    assert list((folder.path / "exports").iterdir()) == []


# --- Checkpoints that go to another node ------------------------------------------------------------------------------


@pytest.fixture
def trained(folder: JobFolder) -> Path:
    """The checkpoints of a job that has saved two."""
    folder.prepare(token="one", script=SCRIPT, owner=None)
    checkpoints = folder.path / "checkpoints"
    (checkpoints / "latest.pt").write_bytes(b"newest")
    (checkpoints / "previous.pt").write_bytes(b"older")
    return checkpoints


def test_checkpoints_are_copied_to_where_no_run_can_change_them(
    folder: JobFolder, trained: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    copies = folder.copy_checkpoint(target, limit_bytes=11)
    assert [(copy.path, copy.size_bytes) for copy in copies] == [
        (target / "latest.pt", 6),
        (target / "previous.pt", 5),
    ]
    (trained / "latest.pt").write_bytes(b"changed")
    assert copies[0].path.read_bytes() == b"newest"
    assert copies[0].sha256 == hashlib.sha256(b"newest").hexdigest()


def test_only_plain_files_of_the_folder_itself_are_copied(folder: JobFolder, trained: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (trained / "link.pt").symlink_to(secret)
    (trained / ".latest.pt.part").write_bytes(b"half")
    (trained / "folder").mkdir()
    os.mkfifo(trained / "pipe")
    target = tmp_path / "target"
    target.mkdir()
    assert [copy.path.name for copy in folder.copy_checkpoint(target, 100)] == ["latest.pt", "previous.pt"]


def test_a_folder_that_a_run_replaced_by_a_link_is_not_followed(
    folder: JobFolder, trained: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    trained.rename(elsewhere)
    trained.symlink_to(elsewhere)
    with pytest.raises(TransferError, match="cannot be read"):
        folder.copy_checkpoint(tmp_path, 100)


def test_checkpoints_that_are_too_large_are_a_clear_error(folder: JobFolder, trained: Path, tmp_path: Path) -> None:
    assert (trained / "latest.pt").exists()
    with pytest.raises(TransferError, match="more than the 10 bytes that can be transferred"):
        folder.copy_checkpoint(tmp_path, limit_bytes=10)


def test_a_job_that_has_saved_nothing_says_so(folder: JobFolder, tmp_path: Path) -> None:
    folder.prepare(token="one", script=SCRIPT, owner=None)
    with pytest.raises(TransferError, match="it has saved no checkpoint"):
        folder.copy_checkpoint(tmp_path, 100)


def test_checkpoints_of_another_node_replace_whatever_is_there(
    folder: JobFolder, trained: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (trained / "latest.pt").unlink()
    (trained / "latest.pt").symlink_to(victim)
    came = tmp_path / "came" / "latest.pt"
    came.parent.mkdir()
    came.write_bytes(b"from the other node")
    folder.put_checkpoint([came], owner=None)
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == {"latest.pt": b"from the other node"}
    assert not (trained / "latest.pt").is_symlink()
    assert victim.read_text() == "untouched"
