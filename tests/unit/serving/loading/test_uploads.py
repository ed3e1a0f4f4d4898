"""Uploads into a real folder; the lifecycle is a stand-in, so that a load can be refused, or never end."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tiercel.core.errors import (
    ArtefactRefusedError,
    ConflictError,
    InvalidRequestError,
    NotAllowedError,
    TiercelError,
    TooLargeError,
    UnavailableError,
)
from tiercel.serving.loading.load_parameters import LoadParameters
from tiercel.serving.loading.stages import clean_up
from tiercel.serving.loading.uploads import Uploads
from tiercel.serving.operators import Operators

OPERATORS = Operators("0123456789abcdef")


class Loading:
    """Notes what it was asked and what lay on disk then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[tuple[str, LoadParameters]] = []
        self.found: list[dict[str, bytes]] = []
        self.failure: TiercelError | None = None
        self.hangs = False
        self.answering = False
        self.begun = asyncio.Event()

    async def load(self, name: str, wanted: LoadParameters) -> int:
        self.asked.append((name, wanted))
        self.found.append(on_disk(self.root))
        self.begun.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return wanted.version or 0

    def answers(self, name: str, version: int) -> bool:
        return self.answering


class Files:
    """The loader's thread for files, as a real one; notes which threads it worked in, unless the server leaves."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.closed = False

    async def look_up(self, function: Callable[..., Any], *arguments: Any) -> Any:
        def work() -> Any:
            self.threads.add(threading.get_ident())
            return function(*arguments)

        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return await asyncio.to_thread(work)


def on_disk(root: Path) -> dict[str, bytes]:
    """Files by path, those being written left out."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def loading(tmp_path: Path) -> Loading:
    return Loading(tmp_path)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def uploads(loading: Loading, files: Files) -> Uploads:
    return Uploads(loading.root, cast("Any", loading), cast("Any", files), OPERATORS, 100, 50)


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_files_are_a_version_on_disk_when_it_is_loaded(uploads: Uploads, loading: Loading) -> None:
    parameters = {"config": "{}", "file:3/model.onnx": b"model", "file:3/labels.txt": text(b"cat\n")}
    assert await uploads.load("m", parameters) == 3
    assert loading.asked[0][1].version == 3
    assert loading.found == [{"m/3/model.onnx": b"model", "m/3/labels.txt": b"cat\n"}]
    assert on_disk(loading.root) == loading.found[0]
    assert (loading.root / ".uploads").stat().st_mode & 0o777 == 0o700


async def test_the_same_files_again_change_nothing_and_others_need_a_higher_number(
    uploads: Uploads, loading: Loading
) -> None:
    for _ in range(2):
        assert await uploads.load("m", {"file:2/model.onnx": b"model"}) == 2
    for other in ({"file:2/model.onnx": b"other"}, {"file:2/model.onnx": b"model", "file:2/labels.txt": b"x"}):
        with pytest.raises(ConflictError, match=r"file:3/model\.onnx"):
            await uploads.load("m", other)
    with pytest.raises(ConflictError, match="version 2 of model 'm' is newer"):
        await uploads.load("m", {"file:1/model.onnx": b"model"})
    assert on_disk(loading.root) == {"m/2/model.onnx": b"model"}
    assert len(loading.asked) == 2


async def test_a_version_that_is_refused_is_gone_again(uploads: Uploads, loading: Loading) -> None:
    await uploads.load("m", {"file:1/model.onnx": b"good"})
    loading.failure = ArtefactRefusedError("no")
    for model in ("m", "new"):
        with pytest.raises(ArtefactRefusedError):
            await uploads.load(model, {"file:2/model.onnx": b"bad"})
    assert on_disk(loading.root) == {"m/1/model.onnx": b"good"}
    assert not (loading.root / "new").exists()
    with pytest.raises(ArtefactRefusedError):  # what was there before is not taken away
        await uploads.load("m", {"file:1/model.onnx": b"good"})
    assert on_disk(loading.root) == {"m/1/model.onnx": b"good"}


async def test_a_load_that_is_broken_off_leaves_nothing(uploads: Uploads, loading: Loading) -> None:
    loading.hangs = True
    task = asyncio.create_task(uploads.load("m", {"file:1/model.onnx": b"model"}))
    await loading.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert on_disk(loading.root) == {}


async def test_files_are_deleted_in_another_thread(uploads: Uploads, loading: Loading, files: Files) -> None:
    loading.failure = ArtefactRefusedError("no")
    with pytest.raises(ArtefactRefusedError):
        await uploads.load("m", {"file:1/model.onnx": b"bad"})
    assert on_disk(loading.root) == {}
    assert files.threads
    assert threading.get_ident() not in files.threads


async def test_a_server_that_leaves_takes_them_out_of_sight_for_the_next_one_to_delete(
    uploads: Uploads, loading: Loading, files: Files
) -> None:
    loading.failure, files.closed = UnavailableError("the server leaves"), True
    with pytest.raises(UnavailableError, match="leaves"):
        await uploads.load("m", {"file:1/model.onnx": b"onnx"})
    (left,) = on_disk(loading.root)
    assert left.startswith(f".uploads/{os.getpid()}-")


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"file:1/../../evil": b""}, InvalidRequestError, "must be file:VERSION/model.onnx"),
        ({"file:../model.onnx": b""}, InvalidRequestError, "must be file:VERSION/model.onnx"),
        ({"file:0/model.onnx": b""}, InvalidRequestError, "must be file:VERSION/model.onnx"),
        ({"file:model.onnx": b""}, InvalidRequestError, "must be file:VERSION/model.onnx"),
        ({"file:1/.bashrc": b""}, InvalidRequestError, "is none of VERSION/model.onnx"),
        ({"file:1/labels.txt": b"x"}, InvalidRequestError, "file:1/model.onnx is missing"),
        ({"file:1/model.onnx": b"", "file:2/model.onnx": b""}, InvalidRequestError, "versions 1, 2"),
        ({"file:1/model.onnx": "%%%"}, InvalidRequestError, "is not base64"),
        ({"file:1/model.onnx": 7}, InvalidRequestError, "must be the file in base64"),
        ({"file:1/model.onnx": b"x" * 101}, TooLargeError, "101 bytes; 100 are possible"),
        ({"file:1/model.onnx": b"", "config": "{"}, InvalidRequestError, "config is not valid JSON"),
        ({"file:1/model.onnx": b"", "config": "[]"}, InvalidRequestError, "config must be a JSON object"),
        ({"file:1/model.onnx": b"", "config": '{"backend": "python"}'}, InvalidRequestError, "config: backend must be"),
        ({"file:1/model.onnx": b"", "config": '{"name": "n"}'}, InvalidRequestError, "config: name must be"),
        ({"config": "{}"}, InvalidRequestError, "config is read beside files only"),
        ({"file:1/model.onnx": b"", "nonsense": 1}, InvalidRequestError, "'nonsense' is unknown"),
    ],
)
async def test_what_cannot_be_writes_nothing(
    uploads: Uploads, loading: Loading, parameters: dict[str, Any], error: type[TiercelError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await uploads.load("m", parameters)
    with pytest.raises(InvalidRequestError, match="model name"):
        await uploads.load("../m", {"file:1/model.onnx": b"x"})
    assert on_disk(loading.root) == {}
    assert loading.asked == []


async def test_without_a_token_nobody_sends_files_but_loads_go_on(loading: Loading) -> None:
    uploads = Uploads(loading.root, cast("Any", loading), cast("Any", Files()), Operators(), 100, 50)
    with pytest.raises(NotAllowedError):
        await uploads.load("m", {"file:1/model.onnx": b"x"})
    await uploads.load("m", {"version": 7})
    assert loading.asked[0][1].version == 7


def test_what_killed_servers_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    clean_up(tmp_path)
    folder = tmp_path / ".uploads"
    for name in ("999999999-0", f"{os.getppid()}-0", "junk"):
        (folder / name).mkdir(parents=True)
    clean_up(tmp_path)
    assert [path.name for path in folder.iterdir()] == [f"{os.getppid()}-0"]


async def test_a_version_that_a_following_process_goes_on_trying_stays_on_disk(
    uploads: Uploads, loading: Loading
) -> None:
    loading.failure, loading.answering = UnavailableError("the server leaves"), True
    with pytest.raises(UnavailableError):
        await uploads.load("m", {"file:1/model.onnx": b"onnx"})
    assert on_disk(loading.root) == {"m/1/model.onnx": b"onnx"}
