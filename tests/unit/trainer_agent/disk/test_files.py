from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.disk.files import (
    UntrustedFileError,
    copy_untrusted,
    open_folder,
    remove_anything,
    write_atomically,
    write_new,
)


def test_writing_atomically_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600


def copy(folder: Path, name: str, target: Path, limit: int = 100) -> str:
    with open_folder(folder) as inside:
        return copy_untrusted(name, inside=inside, target=target, limit_bytes=limit)


def test_copies_and_hashes_what_it_copied(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x" * 100)
    assert copy(tmp_path, "model", tmp_path / "copy") == hashlib.sha256(b"x" * 100).hexdigest()
    assert (tmp_path / "copy").read_bytes() == b"x" * 100


def test_refuses_traps(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "large").write_bytes(b"x" * 101)
    for name, words in {
        "link": "cannot be opened as a regular file",
        "pipe": "is not a regular file",
        "folder": "is not a regular file",
        "large": "is larger than 100 bytes",
        "missing": "cannot be opened",
    }.items():
        with pytest.raises(UntrustedFileError, match=words):
            copy(folder, name, tmp_path / f"copy-{name}")


def test_does_not_open_what_a_link_points_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"), open_folder(tmp_path / "link"):
        pass


def test_removes_links_and_not_what_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    folder = tmp_path / "folder"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(tmp_path / "precious")
    (folder / "link").symlink_to(tmp_path / "precious")
    with open_folder(folder) as inside:
        for name in ("deep", "link", "nothing"):
            remove_anything(name, inside)
    assert list(folder.iterdir()) == []
    assert (tmp_path / "precious" / "file").exists()


def test_never_writes_through_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "token").symlink_to(tmp_path / "victim")
    with open_folder(tmp_path) as inside, pytest.raises(FileExistsError):
        write_new("token", b"x", inside=inside, mode=0o600, owner=None)
    assert (tmp_path / "victim").read_text() == "untouched"


def test_removes_what_is_deeper_than_any_path_may_be_long_and_what_was_closed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    inner = os.open(tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(2_000):
        os.mkdir("d" * 20, dir_fd=inner)
        deeper = os.open("d" * 20, os.O_RDONLY | os.O_DIRECTORY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)
    (tmp_path / "folder" / "closed").mkdir()
    (tmp_path / "folder" / "closed" / "file").touch()
    (tmp_path / "folder" / "closed").chmod(0)
    with open_folder(tmp_path) as inside:
        remove_anything("folder", inside)
    assert list(tmp_path.iterdir()) == []
