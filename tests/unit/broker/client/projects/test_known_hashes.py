"""Hashes of files that are read once: never another file's, whatever happens to the file, the cache or the clock."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tiercel.broker.client.projects import known_hashes
from tiercel.broker.client.projects.known_hashes import MAX_PROJECTS, RESTED_SECONDS, KnownHashes, cache_folder
from tiercel.broker.client.projects.packing import pack
from tiercel.core.projects import Project


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tiercel" / "hashes"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a project."""
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "data.bin"
    path.write_bytes(b"first")
    return path


def later() -> float:
    return time.time() + RESTED_SECONDS + 1


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def reads(hashes: KnownHashes, path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """The hash of a file, and whether it was read for that."""
    opened: list[Path] = []
    real = Path.open

    def counted(self: Path, *arguments: object, **named: object) -> object:
        opened.append(self)
        return real(self, *arguments, **named)  # type: ignore[call-overload]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", counted)
        found, size = hashes.hash_of(path)
    assert size == path.stat().st_size
    return found, path in opened


def remembered(file: Path) -> None:
    """Have a file known."""
    hashes = KnownHashes(file.parent, later)
    hashes.hash_of(file)
    hashes.save()


def test_a_file_that_rests_is_read_once(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(file)
    assert reads(KnownHashes(file.parent), file, monkeypatch) == (sha256(b"first"), False)
    assert [path.stat().st_mode & 0o777 for path in (cache, *cache.iterdir())] == [0o700, 0o600]
    assert reads(KnownHashes(file.parent.parent), file, monkeypatch)[1], "another project knows nothing of it"


def test_a_file_that_was_changed_just_now_is_not_trusted(file: Path, cache: Path) -> None:
    hashes = KnownHashes(file.parent)
    hashes.hash_of(file)
    hashes.save()
    assert not cache.exists()


def test_a_change_is_seen_although_size_and_time_are_put_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(file)
    before = file.stat()
    file.write_bytes(b"other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reads(KnownHashes(file.parent), file, monkeypatch) == (sha256(b"other"), True)


def test_a_change_while_it_is_read_is_not_remembered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.file_digest

    def changed(opened: object, name: str) -> object:
        found = digest(opened, name)  # type: ignore[arg-type]
        file.write_bytes(b"other")
        return found

    hashes = KnownHashes(file.parent, later)
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", changed)
        hashes.hash_of(file)
    hashes.save()
    assert reads(KnownHashes(file.parent), file, monkeypatch) == (sha256(b"other"), True)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"{}", b"x\n" * 1000])
def test_a_damaged_cache_knows_nothing(file: Path, cache: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(file)
    (known,) = cache.iterdir()
    known.write_bytes(damage)
    assert reads(KnownHashes(file.parent), file, monkeypatch) == (sha256(b"first"), True)
    remembered(file)
    text = known.read_bytes()
    known.write_bytes(text.replace(sha256(b"first").encode(), sha256(b"other").encode()))
    assert reads(KnownHashes(file.parent), file, monkeypatch) == (sha256(b"first"), True)
    known.unlink()
    known.mkdir()
    remembered(file)  # no error


def test_a_home_that_cannot_be_written_or_is_not_known_is_done_without(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("not a folder")
    remembered(file)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "tiercel" / "hashes"

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert cache_folder() is None
    remembered(file)


def test_what_is_kept_is_bounded(file: Path, cache: Path, tmp_path: Path) -> None:
    for number in range(MAX_PROJECTS + 5):
        folder = tmp_path / f"project-{number}"
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
        remembered(folder / "file")
    assert len(list(cache.iterdir())) == MAX_PROJECTS
    for each in cache.iterdir():
        os.utime(each, (1, 1))
    (cache / "killed.part").write_bytes(b"")
    os.utime(cache / "killed.part", (1, 1))
    remembered(file)
    assert len(list(cache.iterdir())) == 1


def test_files_that_went_are_forgotten(file: Path, cache: Path) -> None:
    remembered(file)
    other = file.with_name("other")
    other.write_bytes(b"y")
    remembered(other)
    (known,) = cache.iterdir()
    assert sha256(b"first") not in known.read_text()
    assert sha256(b"y") in known.read_text()
    KnownHashes(file.parent).forget()
    assert not known.exists()


def _pack_often(folder: str) -> set[str]:
    known_hashes.RESTED_SECONDS = -3600.0  # type: ignore[misc]
    return {pack(Project(folder=folder), 10**9).project.sha256 for _ in range(40)}


def test_two_at_once_harm_nobody(file: Path, cache: Path) -> None:
    for number in range(50):
        file.with_name(f"{number}").write_bytes(b"%d" % number)
    with ProcessPoolExecutor(2) as pool:
        found = set().union(*pool.map(_pack_often, [str(file.parent)] * 2))
    assert len(found) == 1
    assert [path.suffix for path in cache.iterdir()] == [""]


def test_a_hash_that_the_broker_found_wrong_is_not_believed_again(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no stamp of a file shows: its hash is forgotten, and the next submit reads all."""
    monkeypatch.setattr(known_hashes, "RESTED_SECONDS", -3600.0)
    project = Project(folder=str(file.parent))
    before = pack(project, 10**9).project.sha256
    (known,) = cache.iterdir()
    body = known.read_text().partition("\n")[2].replace(sha256(b"first"), sha256(b"wrong"))
    known.write_text(f"{sha256(body.encode())}\n{body}")
    assert pack(project, 10**9).project.sha256 != before
    KnownHashes(file.parent.resolve()).forget()
    assert pack(project, 10**9).project.sha256 == before
