"""Checkpoints on their way: whole or not there, never outside of their folder, whatever a node says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testing.small_disk import fill, small_disk
from tiercel.broker.store.carried import MAX_FILES, Checkpoint, CheckpointFile, manifest_of
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.core.errors import (
    CannotWriteError,
    InvalidSpecError,
    NotFoundError,
    QuotaExceededError,
    StoreDamagedError,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", limit_bytes=100)


def described(name: str, content: bytes) -> CheckpointFile:
    return CheckpointFile(name, len(content), hashlib.sha256(content).hexdigest())


def put(store: CheckpointStore, run_id: str, contents: dict[str, bytes], pieces: Sequence[bytes]) -> None:
    with store.begin(run_id, [described(*item) for item in contents.items()]) as writer:
        for piece in pieces:
            writer.write(piece)
        writer.finish()


TWO = {"latest.pt": b"newest", "previous.pt": b"older"}


@pytest.mark.parametrize(
    "pieces", [[b"newestolder"], [b"new", b"", b"estol", b"der"], [bytes([byte]) for byte in b"newestolder"]]
)
def test_what_was_taken_in_is_given_out(store: CheckpointStore, pieces: list[bytes]) -> None:
    put(store, "j1-1", TWO, pieces)
    assert store.find("j1-1") == Checkpoint("j1-1", tuple(described(*item) for item in TWO.items()))
    assert b"".join(store.read("j1-1")) == b"newestolder"


def test_an_empty_file_is_a_file(store: CheckpointStore) -> None:
    put(store, "j1-1", {"a": b"", "b": b"x", "c": b""}, [b"x"])
    checkpoint = store.find("j1-1")
    assert checkpoint is not None
    assert [file.size_bytes for file in checkpoint.files] == [0, 1, 0]


def test_a_job_has_one_checkpoint_the_newest(store: CheckpointStore) -> None:
    put(store, "j1-1", {"a": b"first"}, [b"first"])
    put(store, "j1-2", {"a": b"second"}, [b"second"])
    assert store.find("j1-1") is None
    assert b"".join(store.read("j1-2")) == b"second"
    with pytest.raises(NotFoundError):
        list(store.read("j1-1"))


def test_what_was_given_up_takes_nothing_along_of_what_comes_instead(store: CheckpointStore) -> None:
    """An agent that waits no longer tries again, while the broker still has what it sent first."""
    files = [described("a", b"content")]
    first = store.begin("j1-1", files)
    with first:
        first.write(b"con")
        second = store.begin("j1-1", files)
    with second:
        second.write(b"content")
        second.finish()
    assert b"".join(store.read("j1-1")) == b"content"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([b"newest"], "previous.pt ends 5 bytes too early"),
        ([b"newestold"], "previous.pt ends 2 bytes too early"),
        ([b"newestolder", b"x"], "more of it than was announced"),
        ([b"nevestolder"], "latest.pt is not what was announced"),
    ],
)
def test_what_is_not_what_was_announced_leaves_the_one_before(
    store: CheckpointStore, tmp_path: Path, pieces: list[bytes], words: str
) -> None:
    put(store, "j1-1", {"a": b"first"}, [b"first"])
    with pytest.raises(InvalidSpecError, match=words):
        put(store, "j1-2", TWO, pieces)
    assert b"".join(store.read("j1-1")) == b"first"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["j1"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "1 to 16 files"),
        ([described(f"f{number}", b"") for number in range(MAX_FILES + 1)], "1 to 16 files"),
        ([described("a", b""), described("a", b"x")], "a name of its own"),
        ([described("../a", b"")], "plain file name"),
        ([described("/etc/passwd", b"")], "plain file name"),
        ([described(".hidden", b"")], "plain file name"),
        ([CheckpointFile("a", 1, "0" * 63)], "SHA-256"),
        ([CheckpointFile("a", 60, "0" * 64), CheckpointFile("b", 41, "0" * 64)], "101 bytes; at most 100"),
    ],
)
def test_what_must_not_be_taken_is_refused(store: CheckpointStore, files: list[CheckpointFile], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        store.begin("j1-1", files)


@pytest.mark.parametrize("run_id", ["", "j1", "../j1-1", "j1/../../x-1", "J1-1", "j1-1\n", "-1", "." * 9 + "-1"])
def test_what_is_no_run_names_no_path(store: CheckpointStore, tmp_path: Path, run_id: str) -> None:
    (tmp_path / "x").write_text("untouched")
    with pytest.raises(InvalidSpecError, match="not the id of a run"):
        store.begin(run_id, [described("a", b"")])
    assert store.find(run_id) is None
    store.drop(run_id.rpartition("-")[0])
    assert (tmp_path / "x").read_text() == "untouched"


def test_all_of_them_together_have_a_bound(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", total_bytes=400)
    put(store, "j1-1", {"a": b"x" * 100}, [b"x" * 100])
    with pytest.raises(QuotaExceededError, match=r"400 bytes together.*TIERCEL_CHECKPOINTS_BYTES"):
        store.begin("j2-1", [described("a", b"y" * 300)])
    put(store, "j1-2", {"a": b"x" * 300}, [b"x" * 300])  # takes the place of the job's own
    assert store.find("j1-2") is not None
    assert [store.find_of_job(job) for job in ("j2", "../j1")] == [None, None]


def test_the_disk_is_not_filled_to_its_end(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", room=DiskRoom(tmp_path, 1 << 60))
    with pytest.raises(CannotWriteError):
        store.begin("j1-1", [described("a", b"x")])
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_what_nobody_needs_is_dropped(store: CheckpointStore, tmp_path: Path) -> None:
    for job in ("j1", "j2", "j3"):
        put(store, f"{job}-1", {"a": b"x"}, [b"x"])
    part = manifest_of(Checkpoint("j4-1", (described("a", b"xy"),))) + b"x"
    (tmp_path / "checkpoints" / ".j4.7.part").write_bytes(part)
    (tmp_path / "checkpoints" / ".j6.7.part").write_bytes(b"of no use")
    store.drop("j1")
    store.drop("j9")
    again = CheckpointStore(tmp_path / "checkpoints")
    again.keep_only({"j2", "j5"})
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {".j4.7.part", "j2"}
    again.drop_left_over()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["j2"]


def test_a_full_disk_refuses_a_checkpoint_and_keeps_the_one_before(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1024 * 1024) as disk:
        store = CheckpointStore(disk / "checkpoints", room=DiskRoom(disk, 0))
        put(store, "j1-1", TWO, [b"newestolder"])
        filler = fill(disk)
        large = {"latest.pt": bytes(512 * 1024)}
        with pytest.raises(CannotWriteError, match="no space left"):
            put(store, "j1-2", large, [bytes(256 * 1024)] * 2)
        filler.unlink()
        assert [path.name for path in (disk / "checkpoints").iterdir()] == ["j1"]
        assert b"".join(store.read("j1-1")) == b"newestolder"
        put(store, "j1-2", large, [bytes(256 * 1024)] * 2)
        assert store.find("j1-2") is not None


def given_out(store: CheckpointStore, job_id: str) -> bytes:
    file = store.open_whole(job_id)
    assert file is not None
    with file:
        return file.read()


def test_what_was_given_out_whole_can_be_taken_back(store: CheckpointStore, tmp_path: Path) -> None:
    put(store, "j1-1", TWO, [b"newestolder"])
    whole = given_out(store, "j1")
    assert store.open_whole("j2") is None
    assert store.open_whole("../j1") is None
    other = CheckpointStore(tmp_path / "other")
    with other.taking_back("j1-1", len(whole)) as place:
        place.write_bytes(whole)
    assert b"".join(other.read("j1-1")) == b"newestolder"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["j1"]
    put(other, "j1-2", {"a": b"newer"}, [b"newer"])
    with other.taking_back("j1-1", len(whole)) as place:
        place.write_bytes(whole)
    assert b"".join(other.read("j1-2")) == b"newer", "what came meanwhile stays"


@pytest.mark.parametrize(
    ("run_id", "change"),
    [
        ("j1-2", lambda whole: whole),
        ("../j1-1", lambda whole: whole),
        ("j1-1", lambda whole: whole[:-1]),
        ("j1-1", lambda whole: whole + b"!"),
        ("j1-1", lambda _: b""),
        ("j1-1", lambda _: b"{}\n"),
        ("j1-1", lambda _: b'{"run_id": "j1-1", "files": [{"name": "../a", "size_bytes": 0, "sha256": ""}]}\n'),
        ("j1-1", lambda _: b"\xff" * 100_000),
        ("j1-1", lambda _: b"[" * 60_000),
    ],
    ids=["another run", "no run", "truncated", "too long", "empty", "nothing", "bad name", "garbage", "depth"],
)
def test_what_comes_back_as_something_else_is_not_taken(
    store: CheckpointStore, tmp_path: Path, run_id: str, change: Callable[[bytes], bytes]
) -> None:
    put(store, "j1-1", TWO, [b"newestolder"])
    other = CheckpointStore(tmp_path / "other")
    with pytest.raises(StoreDamagedError), other.taking_back(run_id, 10) as place:
        place.write_bytes(change(given_out(store, "j1")))
    assert not list((tmp_path / "other").iterdir())


def test_what_comes_back_needs_room_as_well(store: CheckpointStore, tmp_path: Path) -> None:
    put(store, "j1-1", TWO, [b"newestolder"])
    with pytest.raises(QuotaExceededError), CheckpointStore(tmp_path / "o", total_bytes=5).taking_back("j1-1", 6):
        pytest.fail("there is none")
