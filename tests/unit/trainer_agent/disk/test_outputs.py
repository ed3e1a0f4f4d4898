"""Files that a run left behind, in a folder where it could do what it wanted."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from tiercel.core.path_patterns import PathPatterns
from tiercel.trainer_agent.disk.outputs import Collection, OutputLimits, collect


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "job" / "work"
    folder.mkdir(parents=True)
    return folder


def collected(work: Path, *patterns: str, limits: OutputLimits | None = None) -> Collection:
    target = work.parent.parent / "target"
    target.mkdir()
    return collect(work.parent, work.name, PathPatterns(patterns), target, limits or OutputLimits())


def paths(found: Collection) -> list[str]:
    return [file.path for file in found.files]


def test_what_matches_is_taken_with_its_hash(work: Path) -> None:
    (work / "reports" / "deep").mkdir(parents=True)
    (work / "reports" / "a.html").write_text("one")
    (work / "reports" / "deep" / "b.html").write_text("two")
    (work / "other").write_text("three")
    found = collected(work, "reports/**/*.html")
    assert (paths(found), found.left_out) == (["reports/a.html", "reports/deep/b.html"], {})
    for file, text in zip(found.files, (b"one", b"two"), strict=True):
        assert (file.copy.read_bytes(), file.size_bytes) == (text, 3)
        assert file.sha256 == hashlib.sha256(text).hexdigest()


def test_no_link_is_followed_and_only_files_are_taken(work: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (work / "file-link").symlink_to(secret / "key")
    (work / "folder-link").symlink_to(secret)
    (work / "dangling").symlink_to("nothing")
    os.mkfifo(work / "pipe")
    (work / "good").write_text("good")
    found = collected(work, "**")
    assert paths(found) == ["good"]
    assert found.left_out == {
        **dict.fromkeys(("dangling", "file-link", "folder-link"), "it is a link"),
        "pipe": "it is not a regular file",
    }


def test_a_working_directory_that_became_a_link_is_not_looked_into(work: Path, tmp_path: Path) -> None:
    work.rmdir()
    work.symlink_to(tmp_path)
    with pytest.raises(OSError, match="work"):
        collected(work, "**")


def test_names_that_nobody_can_print_are_left_out_and_shown_harmless(work: Path) -> None:
    (work / "two\nlines").write_text("x")
    Path(os.fsdecode(os.fsencode(work) + b"/\xff\x1b[2J")).write_text("x")
    (work / "..hidden").write_text("x")
    found = collected(work, "*")
    assert paths(found) == ["..hidden"]
    assert len(found.left_out) == 2
    assert all(name.isprintable() for name in found.left_out)
    assert set(found.left_out.values()) == {"its path has characters that cannot be printed"}


def test_ten_thousand_files_are_a_thousand_and_a_reason(work: Path) -> None:
    for number in range(10_000):
        (work / f"{number:05}").touch()
    found = collected(work, "*")
    assert (len(found.files), paths(found)[-1]) == (1_000, "00999")
    assert len(found.left_out) == 1_000
    assert found.left_out["01000"] == "more than 1000 files of a run are not kept; pack them into one"


def test_only_so_much_is_looked_at(work: Path) -> None:
    for number in range(30):
        (work / f"{number:02}").mkdir()
        (work / f"{number:02}" / "file").touch()
    found = collected(work, "**", limits=OutputLimits(entries=10))
    assert paths(found) == []
    assert found.left_out["./..."] == "more than 10 files and folders are not looked at; leave fewer behind"


def test_folders_within_folders_come_to_an_end(work: Path) -> None:
    folder = os.open(work, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    found = collected(work, "**")
    assert (paths(found), list(found.left_out.values())) == ([], ["folders are looked into no deeper than 32 levels"])


def test_files_that_are_too_large_are_left_out_with_the_figures(work: Path) -> None:
    (work / "a").write_bytes(bytes(60))
    (work / "b").write_bytes(bytes(60))
    (work / "c").write_bytes(bytes(40))
    (work / "large").write_bytes(bytes(71))
    with (work / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    found = collected(work, "*", limits=OutputLimits(file_bytes=70, total_bytes=100))
    assert paths(found) == ["a", "c"]
    assert found.left_out == {
        "b": "the files of a run may have 100 bytes together",
        "large": "it has 71 bytes, and a file may have 70",
        "sparse": f"it has {1 << 40} bytes, and a file may have 70",
    }
    assert sum(path.stat().st_size for path in (work.parent.parent / "target").iterdir()) == 100


def test_copies_leave_the_disk_its_reserve(work: Path) -> None:
    (work / "a").write_bytes(b"x")
    (work / "empty").touch()
    found = collected(work, "*", limits=OutputLimits(reserve_bytes=1 << 60))
    assert (paths(found), found.left_out["a"]) == ([], "the disk of its node is full")


def test_a_file_that_grows_while_it_is_read_is_left_out_or_taken_as_it_was(work: Path) -> None:
    growing = work / "growing"
    growing.write_bytes(b"x")
    over = threading.Event()

    def grow() -> None:
        with growing.open("ab", buffering=0) as file:
            while not over.is_set():
                file.write(bytes(1 << 16))

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        found = collected(work, "*", limits=OutputLimits(file_bytes=1 << 20))
    finally:
        over.set()
        thread.join()
    for file in found.files:
        assert file.sha256 == hashlib.sha256(file.copy.read_bytes()).hexdigest()
    assert len(list((work.parent.parent / "target").iterdir())) == len(found.files)
    assert len(found.files) + len(found.left_out) == 1


def test_a_folder_that_cannot_be_read_takes_nothing_else_along(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "closed").mkdir()
    (work / "open").write_text("x")
    real = os.open

    def refuse(path: str, *arguments: int, dir_fd: int | None = None) -> int:
        if path == "closed":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    found = collected(work, "**")
    assert paths(found) == ["open"]
    assert "Permission denied" in found.left_out["closed"]
