from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.artefacts import MemoryArtefacts
from testing.s3_server import BUCKET, S3Server, s3_server
from tiercel.broker.store.artefacts.contract import Artefacts
from tiercel.broker.store.artefacts.folder import FolderArtefacts
from tiercel.broker.store.artefacts.opening import open_artefacts

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Place:
    """An artefact store, and what somebody else can do to it."""

    artefacts: Artefacts
    url: str
    put: Callable[[str, bytes], object]


@pytest.fixture(scope="package")
def bucket() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server; what is opened in this process finds it as any program does."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return bucket


@pytest.fixture(params=["folder", "s3", "memory"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "memory":
        memory = MemoryArtefacts()

        def put(name: str, content: bytes) -> None:
            (memory.marks if name == "owner.json" else memory.contents)[name] = content

        artefacts: Artefacts = memory
        found = Place(artefacts, memory.where, put)
    elif request.param == "folder":
        folder = tmp_path / "kept"
        artefacts = FolderArtefacts(folder, reserve_bytes=0)
        found = Place(artefacts, str(folder), lambda name, content: (folder / name).write_bytes(content))
    else:
        server = request.getfixturevalue("s3")
        prefix = f"lab/{next(_NUMBERS)}"
        url = f"s3://{BUCKET}/{prefix}"
        artefacts = open_artefacts(url)
        found = Place(artefacts, url, lambda name, content: server.put(f"{prefix}/{name}", content))
    yield found
    await artefacts.close()
