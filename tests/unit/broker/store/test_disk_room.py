"""Room on the broker's disk: two that come at once do not both count on what is free."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tarfile
from collections import namedtuple
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.kept_files import KeptFiles
from tiercel.broker.store.projects import ProjectStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.store.version_files import VersionStore, VersionUpload
from tiercel.core.errors import CannotWriteError, StoreDamagedError, UnavailableError
from tiercel.core.files import FileLimits, KeptFile

MODEL = bytes(600)
FILES = [CheckpointFile("model.onnx", len(MODEL), hashlib.sha256(MODEL).hexdigest())]

_Use = namedtuple("_Use", "free")  # noqa: PYI024 - stands for what shutil has


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskRoom:
    """Of a disk with 1,000 bytes of which 300 are to be left; nothing that is written is seen on it."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Use(1_000))
    return DiskRoom(tmp_path, 300)


def upload(versions: VersionStore, _: CheckpointStore) -> VersionUpload:
    return versions.upload(FILES)


@pytest.mark.parametrize(
    "second",
    [
        upload,
        lambda versions, _: versions.begin("digits", 1, FILES),
        lambda _, checkpoints: checkpoints.begin("j1-1", FILES),
    ],
    ids=["another upload", "a version of a node", "a checkpoint"],
)
def test_what_comes_beside_an_upload_finds_the_room_that_is_left_by_it(
    tmp_path: Path, room: DiskRoom, second: Callable[[VersionStore, CheckpointStore], AbstractContextManager[object]]
) -> None:
    stores = VersionStore(tmp_path / "v", room=room), CheckpointStore(tmp_path / "c", room=room)
    with upload(*stores) as first:
        with pytest.raises(CannotWriteError):
            second(*stores)
        first.write(MODEL)  # which the disk would show from now on
        with second(*stores):
            """There is room."""
    with second(*stores):
        """What is over keeps no room from anybody."""


def test_objects_of_a_project_take_room_and_find_what_is_left(tmp_path: Path, room: DiskRoom) -> None:
    versions, projects = VersionStore(tmp_path / "v", room=room), ProjectStore(tmp_path / "p", room=room)
    content = bytes(range(250)) * 2
    name = hashlib.sha256(content).hexdigest()
    with versions.upload(FILES), projects.receive("alice") as receiver, pytest.raises(CannotWriteError):
        receiver.write(name, len(content), content)
    with projects.receive("alice") as receiver:
        receiver.write(name, len(content), content[:100])
        with projects.receive("bob") as other, pytest.raises(CannotWriteError):
            other.write(name, len(content), content)
        with pytest.raises(CannotWriteError):
            versions.upload(FILES)
        receiver.write(name, len(content), content[100:])  # which the disk would show from now on
        with versions.upload(FILES):
            """There is room."""
    with contextlib.suppress(UnavailableError), projects.receive("alice") as receiver:
        receiver.write(name, len(content), content[:100])
        raise UnavailableError("its sender went away")
    with versions.upload(FILES):
        """What was broken off keeps no room from anybody."""


async def test_what_a_job_leaves_takes_room_and_finds_what_is_left(tmp_path: Path, room: DiskRoom) -> None:
    versions = VersionStore(tmp_path / "v", room=room)
    half = KeptFile("half", 300, hashlib.sha256(MODEL[:300]).hexdigest(), "j-1", 1.0)
    whole = KeptFile("whole", len(MODEL), FILES[0].sha256, "j-1", 1.0)
    limits = FileLimits(job_files=10, job_bytes=10_000, tenant_bytes=20_000)
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        kept = KeptFiles(store, tmp_path / "files", limits, room)
        with versions.upload(FILES), pytest.raises(CannotWriteError):
            async with kept.receiving("alice", "j", [half]):
                pytest.fail("there is no room for it")
        assert (await kept.by_job())[0] == {}
        async with kept.receiving("alice", "j", [whole]) as broken_off:
            with pytest.raises(CannotWriteError):
                versions.upload(FILES)
            broken_off.write(MODEL[:500])  # which the disk would show from now on
            async with kept.receiving("bob", "k", [half]) as other:
                other.write(MODEL[:300])
                other.finish()
        with versions.upload(FILES):
            """What was broken off keeps no room from anybody."""
        assert (await kept.by_job())[0] == {"k": 1}


def test_a_project_that_comes_back_takes_room_and_finds_what_is_left(tmp_path: Path, room: DiskRoom) -> None:
    versions, projects = VersionStore(tmp_path / "v", room=room), ProjectStore(tmp_path / "p", room=room)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(FILES[0].sha256)
        member.size = len(MODEL)
        archive.addfile(member, io.BytesIO(MODEL))
    packed.seek(0)
    with versions.upload(FILES), pytest.raises(CannotWriteError):
        projects.unpack("alice", packed)
    assert projects.missing("alice", [FILES[0].sha256])
    packed.seek(0)
    projects.unpack("alice", packed)
    assert projects.missing("alice", [FILES[0].sha256]) == []


@pytest.mark.parametrize("kind", ["a checkpoint", "a version"])
def test_what_comes_back_from_the_artefact_store_takes_room_and_finds_what_is_left(
    tmp_path: Path, room: DiskRoom, kind: str
) -> None:
    versions, checkpoints = VersionStore(tmp_path / "v", room=room), CheckpointStore(tmp_path / "c", room=room)

    def back() -> AbstractContextManager[Path]:
        if kind == "a version":
            return versions.taking_back("digits", 1, FILES[0].sha256, len(MODEL))
        return checkpoints.taking_back("j1-1", len(MODEL))

    with versions.upload(FILES), pytest.raises(CannotWriteError), back():
        pytest.fail("there is no room for it")
    with contextlib.suppress(StoreDamagedError), back() as place:  # what comes is no version
        with pytest.raises(CannotWriteError):
            versions.upload(FILES)
        place.write_bytes(MODEL)  # which the disk would show from now on
        with versions.upload(FILES):
            """There is room."""
    with versions.upload(FILES):
        """What is over keeps no room from anybody."""


def test_what_was_broken_off_keeps_room_from_nobody_until_it_goes_on(tmp_path: Path, room: DiskRoom) -> None:
    versions = VersionStore(tmp_path, room=room)
    with contextlib.suppress(UnavailableError), versions.begin("digits", 1, FILES, resumes=True) as call:
        call.write(MODEL[:100])
        raise UnavailableError("its cable was pulled")
    with versions.begin("digits", 2, FILES, resumes=True) as other:
        with pytest.raises(CannotWriteError):
            versions.begin("digits", 1, FILES, resumes=True)
        other.write(MODEL)
        with versions.begin("digits", 1, FILES, resumes=True) as again:
            assert again.offset_bytes == 100
