"""Files of versions at the broker: what nodes announce is checked, and what nobody needs is removed."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from tiercel.broker.store.checkpoints import CheckpointFile
from tiercel.broker.store.version_files import VersionStore
from tiercel.core.errors import CannotWriteError, InvalidSpecError, UnavailableError

MODEL = b"a model"


def described(name: str, content: bytes) -> CheckpointFile:
    return CheckpointFile(name, len(content), hashlib.sha256(content).hexdigest())


def put(store: VersionStore, version: int, content: bytes = MODEL, endpoint: str = "digits") -> str:
    file = described("model.onnx", content)
    with store.begin(endpoint, version, [file]) as writer:
        writer.write(content)
        writer.finish()
    store.finished(endpoint, version)
    return file.sha256


def test_what_was_taken_in_is_there_in_the_next_life_too_and_what_was_broken_off_is_not(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    first, second = put(store, 1), put(store, 2, b"another")
    with store.begin("digits", 3, [described("model.onnx", MODEL)]) as writer:
        writer.write(MODEL[:3])
    (tmp_path / ".digits@4.part").write_bytes(b"?")
    again = VersionStore(tmp_path)
    assert again.held("digits") == {1: first, 2: second}
    assert b"".join(again.read("digits", 2)) == b"another"
    again.keep_only("digits", {2})
    again.keep_endpoints({"digits"})
    assert [path.name for path in tmp_path.iterdir()] == ["digits@2"]
    with pytest.raises(UnavailableError):
        again.find("digits", 1)
    again.keep_endpoints(())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("endpoint", "version", "files"),
    [
        ("../digits", 1, ["model.onnx"]),
        ("digits@1", 1, ["model.onnx"]),
        ("digits", 0, ["model.onnx"]),
        ("digits", 1, ["reference.npz"]),
        ("digits", 1, ["model.onnx", "run.sh"]),
        ("digits", 1, ["model.onnx", "model.onnx"]),
        ("digits", 1, []),
    ],
)
def test_what_a_node_must_not_announce_is_refused(
    tmp_path: Path, endpoint: str, version: int, files: list[str]
) -> None:
    store = VersionStore(tmp_path / "versions")
    with pytest.raises(InvalidSpecError):
        store.begin(endpoint, version, [described(name, MODEL) for name in files])
    assert list(tmp_path.iterdir()) == [tmp_path / "versions"]


def test_one_that_is_too_large_or_damaged_is_not_taken(tmp_path: Path) -> None:
    store = VersionStore(tmp_path, limit_bytes=3)
    with pytest.raises(InvalidSpecError):
        store.begin("digits", 1, [described("model.onnx", MODEL)])
    larger = VersionStore(tmp_path)
    with larger.begin("digits", 1, [described("model.onnx", MODEL)]) as writer, pytest.raises(InvalidSpecError):
        writer.write(b"A MODEL")
    assert larger.held("digits") == {}


async def test_the_model_of_a_version_is_found_behind_its_other_files_once_it_is_there(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    before, model = described("accuracy.json", b"{}"), described("model.onnx", MODEL)
    waiting = asyncio.create_task(store.wait_model("digits", 1, model.sha256))
    put(store, 1, b"another model")  # not the one that is meant
    with store.begin("digits", 1, [before, model]) as writer:
        writer.write(b"{}" + MODEL)
        writer.finish()
    store.finished("digits", 1)
    file, size_bytes = await waiting
    with file:
        store.keep_only("digits", ())  # whoever reads it is not disturbed
        assert (file.read(), size_bytes) == (MODEL, len(MODEL))


def test_what_would_leave_the_disk_without_a_reserve_is_refused(tmp_path: Path) -> None:
    store = VersionStore(tmp_path, reserve_bytes=2**62)
    with pytest.raises(CannotWriteError):
        put(store, 1)
    assert list(tmp_path.iterdir()) == []
