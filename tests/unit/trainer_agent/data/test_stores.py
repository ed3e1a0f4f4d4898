"""Stores that fsspec knows, with one that is in memory in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import s3fs

from testing.s3_server import s3_server
from tiercel.trainer_agent.data import stores
from tiercel.trainer_agent.data.stores import Listed, Store, found_of
from tiercel.trainer_agent.data.transfer import FetchError, Progress

URL = "s3://bucket/set"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What the store has."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    monkeypatch.setattr(stores, "_store_of", lambda url, *, is_trusted: (memory, "/bucket/set"))
    yield memory
    memory.store.clear()


def copied(store: Store, folder: Path, limit: int = 1000) -> dict[str, str]:
    """Copy all that it has; the hashes."""
    progress = Progress(limit, lambda _: None)
    found = {}
    for each in store.listed():
        target = folder / (each.path or "file")
        target.parent.mkdir(parents=True, exist_ok=True)
        found[each.path] = store.copy(each, target, progress)
    assert progress.size == sum(each.size for each in store.listed())
    return found


def test_a_folder_is_listed_and_copied(files: Any, tmp_path: Path) -> None:
    files.pipe({"/bucket/set/a": b"aa", "/bucket/set/deep/b": b"bbb", "/bucket/settings": b"no"})
    store = Store(URL, is_trusted=False)
    assert sorted((each.path, each.size) for each in store.listed()) == [("a", 2), ("deep/b", 3)]
    assert copied(store, tmp_path) == {
        "a": hashlib.sha256(b"aa").hexdigest(),
        "deep/b": hashlib.sha256(b"bbb").hexdigest(),
    }
    assert (tmp_path / "deep" / "b").read_bytes() == b"bbb"
    before = found_of(URL, store.listed())
    assert (before.name, before.size) == ("", 5)
    files.pipe("/bucket/set/c", b"new")
    assert found_of(URL, store.listed()).version != before.version, "a new file is seen"


def test_a_file_is_a_file(files: Any, tmp_path: Path) -> None:
    files.pipe("/bucket/set", b"all")
    store = Store(URL, is_trusted=False)
    assert found_of(URL, store.listed()).name == "set"
    assert copied(store, tmp_path) == {"": hashlib.sha256(b"all").hexdigest()}


def test_what_cannot_be_is_refused(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(URL, is_trusted=False)
    with pytest.raises(FetchError, match="no such file or folder"):
        store.listed()
    files.pipe({f"/bucket/set/{number}": b"12345" for number in range(4)})
    with pytest.raises(FetchError, match="more than the 7 bytes"):
        copied(store, tmp_path / "small", limit=7)
    (short, *_) = store.listed()
    with pytest.raises(FetchError, match="5 bytes came of 6") as caught:
        store.copy(Listed("x", short.place, 6, "1"), tmp_path / "x", Progress(100, lambda _: None))
    assert caught.value.again
    monkeypatch.setattr(stores, "MAX_FILES", 3)
    with pytest.raises(FetchError, match="more than 3 files"):
        store.listed()


@pytest.mark.parametrize("name", ["../x", "a//b", "./x", "a/../../x", "x" * 300, "/".join("a" * 70)])
def test_no_name_in_a_store_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(FetchError, match="whose path is none"):
        stores._inside(f"bucket/set/{name}", "bucket/set")


def test_an_error_of_a_library_is_one_sentence(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("quota")

    monkeypatch.setattr(files, "info", fail)
    with pytest.raises(FetchError, match="its store answers RuntimeError: quota"):
        Store(URL, is_trusted=False).listed()


def test_what_is_not_open_to_everybody_says_who_may_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        url = server.put("private", b"x")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
        store = Store(url, is_trusted=False)
        with pytest.raises(FetchError, match=r"it is not open to everybody; .* \(--data-sources\)") as caught:
            store.listed()
        assert not caught.value.again
        files = store._files
        s3fs.S3FileSystem.close_session(files.loop, files._s3)
