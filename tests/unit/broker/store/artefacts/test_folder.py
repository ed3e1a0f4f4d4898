"""A folder whose disk is full, or whose mount gives nothing back."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import threading
from pathlib import Path

import pytest

from testing.small_disk import fill, small_disk
from testing.until import until
from tiercel.broker.store.artefacts.folder import MAX_HELD_THREADS, FolderArtefacts
from tiercel.core.checkpoints import Artefact
from tiercel.core.errors import CannotWriteError, StoreDamagedError, UnavailableError

CONTENT = b"what a run has learnt" * 10_000
ARTEFACT = Artefact(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


class Held(io.BytesIO):
    """A file that gives nothing back until it is let go."""

    def __init__(self) -> None:
        super().__init__(CONTENT)
        self.let_go = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        self.let_go.wait(60)
        return super().read(size)


async def test_a_mount_that_hangs_holds_nobody(tmp_path: Path) -> None:
    store, source = FolderArtefacts(tmp_path / "kept", reserve_bytes=0), Held()
    for _ in range(MAX_HELD_THREADS):
        with pytest.raises(UnavailableError, match=r"not within 0.05 s"):
            await store.put(ARTEFACT, source, 0.05)
    with pytest.raises(UnavailableError, match="holds earlier calls still"):
        await store.has(ARTEFACT, 30.0)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "artefacts")
    source.let_go.set()
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "artefacts"])
    await asyncio.sleep(0)
    assert await store.held(30.0) == {}, "what came too late is not kept"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == []
    await store.put(ARTEFACT, io.BytesIO(CONTENT), 30.0)


async def test_a_full_disk_is_said_to_be_one_on_either_side(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1024**2) as disk:
        store = FolderArtefacts(disk / "kept", reserve_bytes=0)
        await store.put(ARTEFACT, io.BytesIO(CONTENT), 30.0)
        elsewhere = FolderArtefacts(tmp_path / "kept", reserve_bytes=0)
        await elsewhere.put(ARTEFACT, io.BytesIO(CONTENT), 30.0)
        fill(disk)
        other = CONTENT + b"!"
        with pytest.raises(CannotWriteError, match=r"the artefact store .* is full"):
            await store.put(Artefact(hashlib.sha256(other).hexdigest(), len(other)), io.BytesIO(other), 30.0)
        assert await store.held(30.0) == {ARTEFACT.sha256: len(CONTENT)}
        with pytest.raises(CannotWriteError, match="cannot write to its disk"):
            await elsewhere.get(ARTEFACT, disk / "back", 30.0)
        assert not (disk / "back").exists()


async def test_room_is_left_on_the_disk(tmp_path: Path) -> None:
    store = FolderArtefacts(tmp_path / "kept", reserve_bytes=2**62)
    with pytest.raises(CannotWriteError, match="little of its disk is left"):
        await store.put(ARTEFACT, io.BytesIO(CONTENT), 30.0)


async def test_a_folder_in_no_folder_is_not_made(tmp_path: Path) -> None:
    store = FolderArtefacts(tmp_path / "mount" / "kept", reserve_bytes=0)
    with pytest.raises(UnavailableError, match="No such file or directory"):
        await store.put(ARTEFACT, io.BytesIO(CONTENT), 30.0)
    assert await store.held(30.0) == {}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_what_somebody_put_in_an_artefacts_place_is_not_followed(tmp_path: Path, kind: str) -> None:
    store, place = FolderArtefacts(tmp_path / "kept", reserve_bytes=0), tmp_path / "kept" / ARTEFACT.sha256
    place.parent.mkdir()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(CONTENT)
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises((StoreDamagedError, UnavailableError), match=r"damaged|does not answer"):
        await store.get(ARTEFACT, tmp_path / "back", 5.0)
    assert await store.held(5.0) == {}
    assert not (tmp_path / "back").exists()
