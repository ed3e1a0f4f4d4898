"""Files of versions at the broker: what nodes announce is checked, and what nobody needs is removed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
from pathlib import Path

import pytest

from testing import onnx_models
from testing.until import until
from tiercel.broker.store.carried import Checkpoint, CheckpointFile, manifest_of
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.version_files import VersionStore
from tiercel.core.endpoints import Moved
from tiercel.core.errors import CannotWriteError, InvalidSpecError, NotFoundError, UnavailableError
from tiercel.core.onnx_data import DATA_FILE, joined

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


async def test_what_was_taken_in_is_there_in_the_next_life_too_and_what_was_broken_off_is_not(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    first, second = put(store, 1), put(store, 2, b"another")
    with store.begin("digits", 3, [described("model.onnx", MODEL)]) as writer:
        writer.write(MODEL[:3])
        assert store.arrived("digits", 3) == Moved(3, len(MODEL))
    assert store.arrived("digits", 3) is None
    (tmp_path / ".digits@4.part").write_bytes(b"?")
    again = VersionStore(tmp_path)
    assert again.held("digits") == {1: first, 2: second}
    pieces = again.read("digits", 2, "n2")
    assert [piece async for piece in pieces] == [b"another"]
    assert [piece async for piece in again.read("digits", 2, "n2", offset=3)] == [b"ther"]
    assert again.fetched("digits", 2) == {}
    again.keep_only("digits", {2})
    again.keep_endpoints({"digits"})
    assert [path.name for path in tmp_path.iterdir()] == ["digits@2"]
    with pytest.raises(UnavailableError):
        again.find("digits", 1)
    with contextlib.suppress(UnavailableError), again.begin("gone", 1, [described("model.onnx", MODEL)]):
        raise UnavailableError("the cable was pulled; its endpoint is removed before more comes")
    lost = again.read("gone", 1, "n2")
    again.keep_endpoints(())
    assert list(tmp_path.iterdir()) == []
    assert again.held("gone", arriving=True) == {}
    with pytest.raises(UnavailableError, match="is not here yet"):
        await anext(lost)


async def test_what_comes_is_passed_on_and_goes_on_where_it_was_broken_off_but_its_end_waits_for_all_of_it(
    tmp_path: Path,
) -> None:
    store, file = VersionStore(tmp_path), described("model.onnx", MODEL)
    read = bytearray()

    async def reader() -> None:
        async for piece in store.read("digits", 1, "n2"):
            read.extend(piece)

    with contextlib.suppress(UnavailableError), store.begin("digits", 1, [file], resumes=True) as first:
        first.write(MODEL[:2])
        assert (store.held("digits"), store.held("digits", arriving=True)) == ({}, {1: file.sha256})
        reading = asyncio.create_task(reader())
        await until(lambda: bytes(read) == MODEL[:2])
        raise UnavailableError("its cable was pulled")
    assert store.arrived("digits", 1) == Moved(2, len(MODEL))
    with store.begin("digits", 1, [file], resumes=True) as second:
        second.write(MODEL[2:4])
        with store.begin("digits", 1, [file], resumes=True) as third:  # the second one is not known to be gone
            assert (second.offset_bytes, third.offset_bytes) == (2, 4)
            with pytest.raises(UnavailableError):
                second.write(MODEL[4:])
            third.write(MODEL[4:])
            await until(lambda: bytes(read) == MODEL[:-1])
            third.finish()
            assert bytes(read) == MODEL[:-1]
    store.finished("digits", 1)
    await reading
    assert (bytes(read), store.held("digits")) == (MODEL, {1: file.sha256})
    assert [path.name for path in tmp_path.iterdir()] == ["digits@1"]


@pytest.mark.parametrize(
    ("left", "is_right"), [(MODEL[:4], True), (MODEL, True), (b"A mo", False), (b"A model", False)]
)
def test_what_the_last_life_of_the_broker_took_in_is_gone_on_with_and_checked_as_a_whole(
    tmp_path: Path, left: bytes, *, is_right: bool
) -> None:
    files = [described("model.onnx", MODEL), described("accuracy.json", b"{}")]
    (tmp_path / ".digits@1.0.part").write_bytes(manifest_of(Checkpoint("digits@1", tuple(files))) + left)
    store = VersionStore(tmp_path)
    with (
        contextlib.nullcontext() if is_right else pytest.raises(InvalidSpecError, match="its SHA-256 differs"),
        store.begin("digits", 1, files, resumes=True) as again,
    ):
        assert again.offset_bytes == len(left)
        again.write((MODEL + b"{}")[len(left) :])
        again.finish()
    if is_right:
        store.finished("digits", 1)
        assert store.held("digits") == {1: files[0].sha256}
    assert [path.name for path in tmp_path.iterdir()] == ["digits@1"] * is_right


def test_what_nobody_goes_on_with_is_removed_and_so_is_what_is_of_no_use(tmp_path: Path) -> None:
    file = described("model.onnx", MODEL)
    for version in range(1, 21):
        part = manifest_of(Checkpoint(f"digits@{version}", (file,))) + MODEL[:3]
        (tmp_path / f".digits@{version}.0.part").write_bytes(part)
        os.utime(tmp_path / f".digits@{version}.0.part", (version, version))
    (tmp_path / ".digits@30.0.part").write_bytes(b"?")
    (tmp_path / ".other@1.0.part").write_bytes(part)
    (tmp_path / ".digits@31.0.part").write_bytes(b'{"run_id": 31, "files": []}\n')
    uploads = {" " * 82: tmp_path / ".upload.0.part", "digits@3": tmp_path / ".upload.1.part"}
    for key, upload in uploads.items():  # one of them was about to be put in its place
        upload.write_bytes(manifest_of(Checkpoint(key, (file,))) + MODEL[:3])
    again = VersionStore(tmp_path, model_bytes=100)
    assert len(list(tmp_path.iterdir())) == 16
    assert not any(upload.exists() for upload in uploads.values())
    assert again.held("digits", arriving=True) == {}
    with again.begin("digits", 20, [described("model.onnx", b"another")], resumes=True) as writer:
        assert writer.offset_bytes == 0
    again.drop_left_over()
    assert list(tmp_path.iterdir()) == []


def test_of_a_version_that_finds_no_room_for_its_first_bytes_nothing_stays(tmp_path: Path) -> None:
    store, file = VersionStore(tmp_path), described("model.onnx", MODEL)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            store.begin("digits", 1, [file])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


async def test_what_was_passed_on_of_what_turns_out_to_be_wrong_or_is_not_needed_any_more_never_ends(
    tmp_path: Path,
) -> None:
    store, file = VersionStore(tmp_path), described("model.onnx", MODEL)

    async def read(version: int) -> None:
        async for _ in store.read("digits", version, "n2"):
            pass

    with store.begin("digits", 1, [file], resumes=True) as lying:
        lying.write(b"A")
        reading = asyncio.create_task(read(1))
        await until(lambda: bool(store.fetched("digits", 1)))
        with pytest.raises(InvalidSpecError):
            lying.write(MODEL[1:])
    with pytest.raises(UnavailableError):
        await reading
    assert store.held("digits", arriving=True) == {1: file.sha256}, "it is to come next"
    with store.begin("digits", 1, [file], resumes=True) as honest:
        assert honest.offset_bytes == 0
        honest.write(MODEL[:1])
        reading = asyncio.create_task(read(1))
        await until(lambda: bool(store.fetched("digits", 1)))
        store.keep_only("digits", ())
        with pytest.raises(UnavailableError):
            honest.write(MODEL[1:])
    with pytest.raises(UnavailableError):
        await reading
    assert (store.held("digits", arriving=True), list(tmp_path.iterdir())) == ({}, [])


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
    store = VersionStore(tmp_path, model_bytes=3)
    with pytest.raises(InvalidSpecError):
        store.begin("digits", 1, [described("model.onnx", MODEL)])
    larger = VersionStore(tmp_path)
    with larger.begin("digits", 1, [described("model.onnx", MODEL)]) as writer, pytest.raises(InvalidSpecError):
        writer.write(b"A MODEL")
    assert larger.held("digits") == {}


async def test_the_model_of_a_version_is_found_behind_its_other_files_once_it_is_there(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    before, model = described("accuracy.json", b"{}"), described("model.onnx", MODEL)
    waiting = asyncio.create_task(store.wait_file("digits", 1, model.sha256))
    put(store, 1, b"another model")  # not the one that is meant
    with store.begin("digits", 1, [before, model]) as writer:
        writer.write(b"{}" + MODEL)
        writer.finish()
    store.finished("digits", 1)
    file, known = await waiting
    with file:
        store.keep_only("digits", ())  # whoever reads it is not disturbed
        assert (file.read(), known) == (MODEL, model)


def test_weights_beside_a_model_come_with_it_and_are_those_that_it_means(tmp_path: Path) -> None:
    onnx_models.save_external(onnx_models.mlp((4, 3)), tmp_path / "saved.onnx")
    saved = joined(tmp_path / "saved.onnx")
    assert saved is not None
    data = b"".join(saved.pieces())
    model = saved.content(saved.digest())
    store = VersionStore(tmp_path / "versions")

    def upload(*files: tuple[str, bytes]) -> None:
        with store.upload([described(*each) for each in files]) as upload:
            upload.write(b"".join(content for _, content in files))
            assert upload.signature() is not None
            upload.check_data()
            upload.put("digits", 1)

    for files in ([("model.onnx", model)], [("model.onnx", model), (DATA_FILE, data[::-1])]):
        with pytest.raises(InvalidSpecError, match="data: is not what the model says of"):
            upload(*files)
    with pytest.raises(InvalidSpecError, match="data: is not what"):
        upload(("model.onnx", onnx_models.plus(1.0)), (DATA_FILE, data))
    small = VersionStore(tmp_path / "small", model_bytes=len(model) + len(data) - 1)
    with pytest.raises(InvalidSpecError, match="TIERCEL_MODEL_BYTES"):
        small.upload([described("model.onnx", model), described(DATA_FILE, data)])
    assert list((tmp_path / "versions").iterdir()) == []
    upload(("model.onnx", model), (DATA_FILE, data))


async def test_a_file_that_a_version_has_not_is_none(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    sha256 = put(store, 1)
    with pytest.raises(NotFoundError, match="has no 'model"):
        await store.wait_file("digits", 1, sha256, DATA_FILE)


def test_what_would_leave_the_disk_without_a_reserve_is_refused(tmp_path: Path) -> None:
    store = VersionStore(tmp_path, room=DiskRoom(tmp_path, 2**62))
    with pytest.raises(CannotWriteError):
        put(store, 1)
    assert list(tmp_path.iterdir()) == []
