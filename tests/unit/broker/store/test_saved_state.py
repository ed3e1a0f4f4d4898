"""What is saved of a broker comes back as it was, and nothing else does."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from testing.artefacts import MemoryArtefacts
from tiercel.broker.store.artefacts.contract import DATABASES_MARK
from tiercel.broker.store.saved_state import DATABASE, save, take_from_file, take_from_store
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import InvalidSpecError, NotFoundError, StoreDamagedError


@pytest.fixture
async def broker(tmp_path: Path) -> Path:
    """The state directory of a broker that has run."""
    folder = tmp_path / "broker"
    folder.mkdir()
    async with Store(sqlite_url(folder / DATABASE)):
        pass
    (folder / "secrets.key").write_bytes(b"key")
    (folder / "tenants.toml").write_text("[alice]")
    return folder


def an_empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_database_and_keys_come_back_and_nobody_else_may_read_them(broker: Path, tmp_path: Path) -> None:
    file, found = tmp_path / "saved.tar", an_empty(tmp_path / "found")
    names = save(broker, file)
    assert sorted(names) == [DATABASE, "secrets.key", "tenants.toml"]
    assert take_from_file(file, found, with_database=True) == names
    assert (found / "secrets.key").read_bytes() == b"key"
    assert {path.stat().st_mode & 0o777 for path in [file, *found.iterdir()]} == {0o600}
    async with Store(sqlite_url(found / DATABASE)) as store:
        assert await store.list_jobs() == []
    with pytest.raises(InvalidSpecError, match="exists"):
        save(broker, file)
    with pytest.raises(InvalidSpecError, match="exists"):
        take_from_file(file, found, with_database=True)
    assert (found / "secrets.key").exists(), "what was there stays"


@pytest.mark.parametrize(
    ("name", "kind", "content"),
    [
        ("../secrets.key", tarfile.REGTYPE, b"x"),
        ("/etc/passwd", tarfile.REGTYPE, b"x"),
        ("owner.json", tarfile.REGTYPE, b"x"),
        ("secrets.key", tarfile.SYMTYPE, b""),
        ("secrets.key", tarfile.FIFOTYPE, b""),
        (DATABASE, tarfile.REGTYPE, b"no database" * 1000),
        (DATABASE, tarfile.REGTYPE, b""),
    ],
)
def test_what_no_broker_saves_is_refused_and_nothing_of_it_is_left(
    tmp_path: Path, name: str, kind: bytes, content: bytes
) -> None:
    file, found = tmp_path / "saved.tar", an_empty(tmp_path / "found")
    with tarfile.open(file, "w") as archive:
        for each, of_kind, data in (("tenants.toml", tarfile.REGTYPE, b"x"), (name, kind, content)):
            member = tarfile.TarInfo(each)
            member.type, member.size, member.linkname = of_kind, len(data), "/etc/shadow"
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(StoreDamagedError):
        take_from_file(file, found, with_database=True)
    assert list(found.iterdir()) == []


def test_a_file_that_is_cut_off_is_refused(broker: Path, tmp_path: Path) -> None:
    file, found = tmp_path / "saved.tar", an_empty(tmp_path / "found")
    save(broker, file)
    file.write_bytes(file.read_bytes()[:20_000])
    with pytest.raises(StoreDamagedError):
        take_from_file(file, found, with_database=True)
    assert list(found.iterdir()) == []


async def test_of_an_artefact_store_the_newest_copy_comes_back_that_is_whole(broker: Path, tmp_path: Path) -> None:
    found, artefacts = an_empty(tmp_path / "found"), MemoryArtefacts()
    with pytest.raises(NotFoundError, match="no copy of a broker's database"):
        await take_from_store(artefacts, found)
    whole, not_one = (broker / DATABASE).read_bytes(), b"no database" * 1000
    told = [{"sha256": "0" * 64, "size_bytes": 5, "at": 3.0}, "nonsense"]
    artefacts.marks[DATABASES_MARK] = json.dumps(told).encode()
    with pytest.raises(NotFoundError):
        await take_from_store(artefacts, found)
    told.pop()
    for at, content in ((2.0, not_one), (1.0, whole)):
        sha256 = hashlib.sha256(content).hexdigest()
        artefacts.contents[sha256] = content
        told.append({"sha256": sha256, "size_bytes": len(content), "at": at})
    artefacts.marks[DATABASES_MARK] = json.dumps(told).encode()
    assert (await take_from_store(artefacts, found)).at == 1.0
    assert [path.name for path in found.iterdir()] == [DATABASE]
    artefacts.contents.clear()
    with pytest.raises(StoreDamagedError, match="no copy of the database can be used"):
        await take_from_store(artefacts, found)
