"""Files fetched from a broker that may send anything, into a folder where anything may be."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing.jobs_service import QUICK, SUBMITTED, TOKEN
from tiercel import Client, InvalidSpecError, NotFoundError, TiercelError
from tiercel.v1 import files_pb2, files_pb2_grpc


@dataclass
class FilesBroker(files_pb2_grpc.FilesServiceServicer):
    """Lists and sends what a test tells it to."""

    files: dict[str, bytes] = field(default_factory=dict)
    sends: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    fetched: list[tuple[str, int]] = field(default_factory=list)

    async def ListFiles(self, request: files_pb2.ListFilesRequest, context: Any) -> files_pb2.ListFilesResponse:  # noqa: N802
        return files_pb2.ListFilesResponse(
            files=[
                files_pb2.KeptFile(
                    path=path,
                    size_bytes=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                    run_id="j-1",
                    kept_at=SUBMITTED,
                )
                for path, data in self.files.items()
            ]
        )

    async def FetchFile(  # noqa: N802
        self, request: files_pb2.FetchFileRequest, context: Any
    ) -> AsyncIterator[files_pb2.FetchFileResponse]:
        self.fetched.append((request.path, request.offset_bytes))
        data = self.sends.get(request.path, self.files[request.path])
        stop = self.breaks.pop(0) if self.breaks else len(data)
        for begin in range(request.offset_bytes, min(stop, len(data)), 4):
            yield files_pb2.FetchFileResponse(data=data[begin : min(begin + 4, stop)])
        if stop < len(data):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


@pytest.fixture
async def broker() -> AsyncIterator[tuple[FilesBroker, Client]]:
    files, server = FilesBroker(), grpc.aio.server()
    files_pb2_grpc.add_FilesServiceServicer_to_server(files, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(f"127.0.0.1:{port}", token=TOKEN, options=QUICK) as client:
        yield files, client
    await server.stop(None)


Broker = tuple[FilesBroker, Client]


def there(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_what_matches_is_fetched_and_what_is_there_already_is_not_fetched_again(
    broker: Broker, tmp_path: Path
) -> None:
    files, client = broker
    files.files = {"a.txt": b"one", "b/c.txt": b"two", "b/d.bin": b"three"}
    await client.download("j", tmp_path / "out", "**/*.txt")
    assert there(tmp_path / "out") == {"a.txt": b"one", "b/c.txt": b"two"}
    (tmp_path / "out" / "a.txt").write_bytes(b"was changed")
    files.fetched.clear()
    await client.download("j", tmp_path / "out")
    assert there(tmp_path / "out") == files.files
    assert files.fetched == [("a.txt", 0), ("b/d.bin", 0)]
    with pytest.raises(NotFoundError, match=r"no file that matches '\*\.png'"):
        await client.download("j", tmp_path / "out", "*.png")


async def test_a_broken_connection_is_gone_on_with_where_it_was(broker: Broker, tmp_path: Path) -> None:
    files, client = broker
    files.files, files.breaks = {"a": b"0123456789"}, [4, 9]
    await client.download("j", tmp_path)
    assert there(tmp_path) == files.files
    assert files.fetched == [("a", 0), ("a", 4), ("a", 9)]


@pytest.mark.parametrize("sent", [b"other", b"longer than that", b"o"])
async def test_what_is_damaged_never_gets_its_name(broker: Broker, tmp_path: Path, sent: bytes) -> None:
    files, client = broker
    files.files, files.sends = {"a": b"right"}, {"a": sent}
    (tmp_path / "a").write_bytes(b"as before")
    with pytest.raises(TiercelError):
        await client.download("j", tmp_path)
    assert there(tmp_path) == {"a": b"as before"}


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "a//b", "."])
async def test_a_broker_that_names_a_path_outside_is_not_heeded(broker: Broker, tmp_path: Path, path: str) -> None:
    files, client = broker
    files.files = {path: b"x"}
    (tmp_path / "to").mkdir()
    with pytest.raises((InvalidSpecError, NotFoundError)):
        await client.download("j", tmp_path / "to")
    assert list(tmp_path.rglob("*")) == [tmp_path / "to"]


async def test_a_link_that_leads_out_of_the_folder_is_not_followed(broker: Broker, tmp_path: Path) -> None:
    files, client = broker
    (tmp_path / "outside").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "to" / "file").symlink_to(tmp_path / "outside" / "file")
    files.files = {"link/deeper/a": b"x"}
    with pytest.raises(InvalidSpecError, match="is a link that leads out of"):
        await client.download("j", tmp_path / "to")
    files.files = {"file": b"y"}
    await client.download("j", tmp_path / "to")
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "to" / "file").read_bytes() == b"y"


async def test_a_folder_that_cannot_be_written_to_is_named(broker: Broker, tmp_path: Path) -> None:
    files, client = broker
    files.files = {"a": b"x"}
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSpecError, match=r"to: a cannot be written into .*choose another folder"):
        await client.download("j", tmp_path / "file")
