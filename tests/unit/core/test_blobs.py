"""Files by content: whole or not there, and what is not needed goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiercel.core.blobs import BlobError, BlobFolder
from tiercel.core.projects import sha256_of


def put(blobs: BlobFolder, *contents: bytes) -> list[str]:
    names = [sha256_of(content) for content in contents]
    with blobs.receive() as receiver:
        for name, content in zip(names, contents, strict=True):
            receiver.write(name, len(content), content)
        receiver.finish()
    return names


def test_what_was_received_is_there_and_nothing_else_is(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path / "blobs")
    assert blobs.missing(["ab" * 32]) == ["ab" * 32]
    names = put(blobs, b"one", b"", b"three")
    assert blobs.missing([*names, "ab" * 32]) == ["ab" * 32]
    assert [blobs.read(name, 100) for name in names] == [b"one", b"", b"three"]
    assert (blobs.size(names[0]), blobs.size("ab" * 32), blobs.used_bytes()) == (3, None, 8)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([("x", 1, b"x")], "not a SHA-256"),
        ([("../" + "a" * 61, 1, b"x")], "not a SHA-256"),
        ([("ab" * 32, 1, b"x")], "its SHA-256 differs"),
        ([("ab" * 32, 1, b"xy")], "more bytes than were announced"),
        ([("ab" * 32, 2, b"x"), ("cd" * 32, 1, b"y")], "ends 1 bytes too early"),
        ([("ab" * 32, 2, b"x")], "ends 1 bytes too early"),
    ],
)
def test_lies_are_refused_and_leave_nothing(tmp_path: Path, pieces: list[tuple[str, int, bytes]], message: str) -> None:
    blobs = BlobFolder(tmp_path)

    def receive() -> None:
        with blobs.receive() as receiver:
            for piece in pieces:
                receiver.write(*piece)
            receiver.finish()

    with pytest.raises(BlobError, match=message):
        receive()
    assert list(tmp_path.iterdir()) == []


def test_what_is_whole_before_a_break_but_not_finished_is_not_kept(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    with blobs.receive() as receiver:
        receiver.write(sha256_of(b"one"), 3, b"one")
        receiver.write(sha256_of(b"two"), 3, b"t")
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_life_left_half_is_removed(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    (name,) = put(blobs, b"whole")
    (tmp_path / f".{'ab' * 32}.0123.part").write_bytes(b"half")
    blobs.remove_unfinished()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_oldest_go_first_and_what_is_kept_stays(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    names = put(blobs, *(bytes([number]) * 10 for number in range(5)))
    for age, name in enumerate(names):
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    blobs.note_used([names[4], "ab" * 32])
    assert blobs.remove_oldest(20, kept={names[3]}) == 20
    assert blobs.missing(names) == names[:3]
    assert blobs.remove_oldest(0, kept=set(names)) == 20


def test_young_files_stay_though_nobody_refers_to_them_yet(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    old, kept, young = put(blobs, b"old", b"kept", b"young")
    for name in (old, kept):
        os.utime(tmp_path / name, (1000, 1000))
    assert blobs.remove_others({kept}, 3600.0) == 3
    assert blobs.missing([old, kept, young]) == [old]


def test_many_files_are_kept_with_few_of_them_open(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    names = put(blobs, *(str(number).encode() for number in range(1_000)))
    assert blobs.missing(names) == []
    assert len(list(tmp_path.iterdir())) == 1_000
