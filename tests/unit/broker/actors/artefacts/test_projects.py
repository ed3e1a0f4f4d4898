"""Projects in the artefact store: there while a job lives that runs from them, and back where a broker is made anew."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.actors import Actors, running_actors, submit
from testing.artefacts import MemoryArtefacts
from testing.clock import ManualClock
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.actors.artefacts.projects import AGAIN_SECONDS, ProjectKeeper
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.backups import copy_database
from tiercel.broker.store.projects import ProjectStore
from tiercel.broker.store.saved_state import DATABASE, take_projects
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.store.stored_projects import ProjectKey, StoredProjects
from tiercel.core.errors import StoreDamagedError
from tiercel.core.jobs import Job
from tiercel.core.projects import Entry, Kind, Project, encode_folder, sha256_of


class Broker:
    """What is kept of projects, in a state directory, by actors whose jobs run from them."""

    def __init__(self, folder: Path, actors: Actors, database: Store) -> None:
        self.folder = folder
        self.artefacts = MemoryArtefacts()
        self.projects = ProjectStore(folder / "projects")
        self.actors = actors
        self.database = database
        self.begin_anew()

    def begin_anew(self, limit_bytes: int = 10_000_000) -> None:
        """Forget what is not written down."""
        ownership = Ownership(self.artefacts, "database", str(id(object())))
        own = OwnArtefacts(self.artefacts, ownership, self.clock, limit_bytes)
        stored, registry = StoredProjects(self.database), self.actors.registry
        kinds = [ProjectKeeper(own, self.projects, stored, registry, self.clock, self.folder)]
        self.keeper = ArtefactKeeper(own, kinds, self.clock)

    @property
    def clock(self) -> ManualClock:
        return self.actors.clock

    def take(self, **files: bytes) -> str:
        """Take in a project of alice's; returns its root."""
        listing = encode_folder(Entry(name, Kind.FILE, sha256_of(text), len(text)) for name, text in files.items())
        with self.projects.receive("alice") as receiver:
            for content in (*files.values(), listing):
                receiver.write(sha256_of(content), len(content), content)
            receiver.finish()
        return sha256_of(listing)

    async def runs(self, root: str, endpoint: str = "digits") -> Job:
        """A job runs from a project."""
        command = ("python", "train.py")
        return await submit(self.actors, endpoint, module="", command=command, project=Project(root))

    async def cancel(self, job: Job) -> None:
        await self.actors.service.cancel("alice", job.id)
        await self.actors.settle()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    folder = tmp_path / "broker"
    folder.mkdir()
    async with (
        Store(sqlite_url(folder / DATABASE)) as database,
        running_actors(database, has_store=True) as actors,
    ):
        yield Broker(folder, actors, database)


async def restored(broker: Broker, folder: Path) -> tuple[int, list[str]]:
    """A new state directory with a copy of the database, and what came back into it."""
    folder.mkdir()
    copy_database(broker.folder / DATABASE, folder / DATABASE)
    return await take_projects(broker.artefacts, folder)


async def test_a_project_comes_back_as_it_was_where_a_broker_is_made_of_the_database(
    broker: Broker, tmp_path: Path
) -> None:
    root = broker.take(train=b"print()", data=b"x" * 3_000_000, empty=b"")
    await broker.runs(root)
    await broker.runs(root, "second")
    for _ in range(2):
        broker.begin_anew()
        await broker.keeper.look()
    assert broker.artefacts.calls.count("put") == 1, "once for two jobs and two lives"
    assert await restored(broker, tmp_path / "found") == (1, [])
    assert ProjectStore(tmp_path / "found" / "projects").check("alice", root) == broker.projects.check("alice", root)
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == [DATABASE, "projects"]


async def test_what_no_job_needs_any_more_goes_and_what_somebody_removed_is_stored_again(broker: Broker) -> None:
    first, second = broker.take(train=b"first"), broker.take(train=b"second")
    jobs = [await broker.runs(first), await broker.runs(second, "second")]
    await broker.keeper.look()
    held = set(broker.artefacts.contents)
    assert len(held) == 2
    broker.artefacts.contents.clear()
    broker.begin_anew()
    await broker.keeper.look()
    assert set(broker.artefacts.contents) == held, "the same bytes each time"
    await broker.cancel(jobs[0])
    await broker.keeper.look()
    assert len(broker.artefacts.contents) == 1
    await broker.cancel(jobs[1])
    broker.begin_anew()
    await broker.keeper.look()
    assert not broker.artefacts.contents


async def test_one_that_does_not_fit_is_left_out_and_tried_again_later(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large, small = broker.take(train=b"x" * 1_000_000), broker.take(train=b"small")
    await broker.runs(large)
    await broker.runs(small, "second")
    broker.begin_anew(limit_bytes=500_000)
    for _ in range(3):
        await broker.keeper.look()
    assert len(broker.artefacts.contents) == 1
    assert caplog.text.count(f"project {large} of tenant alice is not in the store") == 1
    assert await restored(broker, tmp_path / "found") == (1, [])
    broker.begin_anew()
    await broker.keeper.look()
    broker.clock.advance(AGAIN_SECONDS)
    await broker.keeper.look()
    assert len(broker.artefacts.contents) == 2


async def test_one_that_is_damaged_in_the_store_is_named_and_the_others_come_back(
    broker: Broker, tmp_path: Path
) -> None:
    roots = [broker.take(train=text) for text in (b"good", b"bad")]
    for number, root in enumerate(roots):
        await broker.runs(root, f"e{number}")
    await broker.keeper.look()
    damaged = (await StoredProjects(broker.database).load())[ProjectKey("alice", roots[1])]
    broker.artefacts.contents[damaged.sha256] = b"something else"
    count, (problem,) = await restored(broker, tmp_path / "found")
    assert count == 1
    assert problem.startswith(f"project {roots[1]} of tenant alice did not come back: ")


@pytest.mark.parametrize(
    ("name", "kind", "content"),
    [
        ("../secrets.key", tarfile.REGTYPE, b"x"),
        (sha256_of(b"x"), tarfile.SYMTYPE, b""),
        (sha256_of(b"x"), tarfile.REGTYPE, b"y"),
    ],
)
def test_an_archive_that_no_broker_packed_is_refused(tmp_path: Path, name: str, kind: bytes, content: bytes) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, len(content), "/etc/shadow"
        archive.addfile(member, io.BytesIO(content))
    file.seek(0)
    with pytest.raises(StoreDamagedError):
        ProjectStore(tmp_path / "projects").unpack("alice", file)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
