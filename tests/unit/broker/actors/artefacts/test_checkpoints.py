"""The keeper of checkpoints: the artefact store gets what the jobs need, loses what they do not, and gives it back."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testing.actors import Actors, make_node, running, running_actors
from testing.artefacts import MemoryArtefacts
from testing.clock import ManualClock
from tiercel.broker.actors.artefacts.checkpoints import CheckpointKeeper
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.lifecycle.job_events import CheckpointCopied
from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import ConflictError, UnavailableError
from tiercel.core.jobs import Job, JobState

AWAY = failures.no_answer("memory", "ConnectTimeoutError")


@dataclass
class Broker:
    """A broker's actors with its checkpoints and their keeper, which is made to look by hand."""

    actors: Actors
    checkpoints: CheckpointStore
    artefacts: MemoryArtefacts
    keeper: ArtefactKeeper

    async def copied(self, run_id: str, content: bytes) -> None:
        """A copy of a run's checkpoint comes to the broker."""
        file = CheckpointFile("latest.pt", len(content), hashlib.sha256(content).hexdigest())
        with self.checkpoints.begin(run_id, [file]) as writer:
            writer.write(content)
            writer.finish()
        self.actors.clock.advance(1)
        actor = self.actors.registry.job_of(run_id)
        assert actor is not None
        await actor.send(CheckpointCopied(run_id, self.actors.clock.now()))
        await self.actors.settle()

    async def look(self, job: Job) -> Job:
        """The keeper looks; the job as it is then."""
        await self.keeper.look()
        return await self.actors.job(job.id)

    async def look_in_vain(self, job: Job) -> Job:
        """The same while the store is away, as the keeper does by itself."""
        with pytest.raises(UnavailableError):
            await self.keeper.look()
        return await self.actors.job(job.id)

    def content_of(self, job: Job) -> bytes:
        """The end of what is stored of a job."""
        assert job.stored is not None
        return self.artefacts.contents[job.stored.artefact.sha256].partition(b"\n")[2]


def keeper_of(actors: Actors, checkpoints: CheckpointStore, artefacts: MemoryArtefacts, limit: int) -> Broker:
    ownership = Ownership(artefacts, "database", str(id(actors)))
    own = OwnArtefacts(artefacts, ownership, actors.clock, limit)
    keeper = ArtefactKeeper(own, [CheckpointKeeper(own, checkpoints, actors.registry, actors.clock)], actors.clock)
    return Broker(actors, checkpoints, artefacts, keeper)


class Lives:
    """One broker after the other with the same database and the same artefact store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(sqlite_url(folder / "broker.sqlite"))
        self.clock = ManualClock()
        self.artefacts = MemoryArtefacts()

    def life(self, name: str, *, has_store: bool = True, room: int = 10_000, limit: int = 10_000) -> _Life:
        """A life with a folder of its own by that name."""
        checkpoints = CheckpointStore(self.folder / name, total_bytes=room)
        return _Life(self, checkpoints, has_store=has_store, limit=limit)


class _Life:
    def __init__(self, lives: Lives, checkpoints: CheckpointStore, *, has_store: bool, limit: int) -> None:
        self._lives, self._checkpoints, self._limit = lives, checkpoints, limit
        self._actors = running_actors(lives.store, lives.clock, None, None, checkpoints, has_store=has_store)

    async def __aenter__(self) -> Broker:
        await self._lives.store.open()
        actors = await self._actors.__aenter__()
        return keeper_of(actors, self._checkpoints, self._lives.artefacts, self._limit)

    async def __aexit__(self, *error: object) -> None:
        await self._actors.__aexit__(*error)  # type: ignore[arg-type]
        await self._lives.store.close()


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


async def trained(broker: Broker, endpoint: str = "digits") -> Job:
    """A job that runs and asks for copies."""
    job = await running(broker.actors, endpoint, copy_checkpoint_seconds=60.0)
    await broker.actors.report(job.run_id, 0.5)
    return job


async def test_a_newer_copy_takes_the_place_of_the_older_one(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        assert (await broker.look(job)).stored is None
        for content in (b"older", b"newer"):
            await broker.copied(job.run_id, content)
            job = await broker.look(job)
            assert job.stored is not None
            assert (job.stored.copy, broker.content_of(job)) == (job.copy, content)
        job = await broker.look(job)
        assert len(broker.artefacts.contents) == 1
        made = len(broker.artefacts.calls)
        await broker.look(job)
        assert len(broker.artefacts.calls) == made, "who has nothing to do asks nothing"
        await broker.actors.service.cancel("alice", job.id)
        await broker.actors.exit(job.run_id)
        await broker.look(job)
        assert not broker.artefacts.contents


async def test_what_nobody_needs_is_removed_and_what_is_missing_is_put_again(lives: Lives) -> None:
    lives.artefacts.contents = {"0" * 64: b"of an earlier life"}
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
        assert "0" * 64 not in broker.artefacts.contents
        broker.artefacts.contents.clear()
        lives.clock.advance(3601)
        job = await broker.look(job)
        assert broker.content_of(job) == b"learnt"


async def test_while_the_store_is_away_the_owner_reads_why_and_it_is_tried_again(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        lives.artefacts.failing = AWAY
        job = await broker.look_in_vain(job)
        assert (job.state, job.stored, job.store_problem) == (JobState.RUNNING, None, AWAY.message)
        assert await broker.look_in_vain(job) is job, "it is said once"
        lives.artefacts.failing = None
        job = await broker.look(job)
        assert (broker.content_of(job), job.store_problem) == (b"learnt", "")


async def test_a_broker_with_an_empty_folder_gets_the_copy_back(lives: Lives) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new") as broker:
        await broker.actors.pass_time(61)  # its node is gone
        job = await broker.actors.job(job.id)
        assert (job.state, job.awaits_copy) == (JobState.PENDING, True)
        await broker.actors.connect(make_node("n2"))
        await broker.actors.pass_time(4)
        assert (await broker.actors.job(job.id)).state is JobState.PENDING, "it does not begin from nothing meanwhile"
        lives.artefacts.failing = AWAY
        job = await broker.look_in_vain(job)
        assert job.reason == f"waits for its checkpoint: {AWAY.message}"
        lives.artefacts.failing = None
        await broker.look(job)
        assert b"".join(broker.checkpoints.read(f"{job.id}-1")) == b"learnt"
        await broker.actors.pass_time(2)
        job = await broker.actors.job(job.id)
        assert (job.node_id, job.carried_run) == ("n2", f"{job.id}-1")
        assert job.reason == "starting on node n2 from the checkpoint that the broker holds"


async def test_another_machine_with_the_name_of_a_lost_node_is_given_the_copy(lives: Lives) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new") as broker:
        await broker.actors.connect()  # n1 again, without the run
        job = await broker.actors.job(job.id)
        assert (job.state, job.awaits_copy, job.checkpoint_node) == (JobState.PENDING, True, "n1")
        await broker.look(job)
        await broker.actors.pass_time(2)
        job = await broker.actors.job(job.id)
        assert (job.node_id, job.carried_run) == ("n1", f"{job.id}-1")
        await broker.actors.alive(job.run_id)
        assert not (await broker.actors.job(job.id)).prefers_copy


@pytest.mark.parametrize("change", ["wrong bytes", "truncated", "gone"])
async def test_a_job_whose_copy_is_of_no_use_any_more_begins_anew_and_says_so(lives: Lives, change: str) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        job = await broker.look(job)
        assert job.stored is not None
        name = job.stored.artefact.sha256
    content = lives.artefacts.contents.pop(name)
    if change != "gone":
        lives.artefacts.contents[name] = content[:-1] + (b"" if change == "truncated" else b"!")
    async with lives.life("new") as broker:
        await broker.actors.pass_time(61)
        job = await broker.look(job)
        assert (job.copy, job.stored, job.awaits_copy) == (None, None, False)
        assert ("does not have" if change == "gone" else "damaged") in job.store_problem
        assert not list((lives.folder / "new").iterdir())
        await broker.actors.connect(make_node("n2"))
        await broker.actors.pass_time(5)
        job = await broker.actors.job(job.id)
        assert (job.node_id, job.carried_run) == ("n2", "")


async def test_without_its_store_a_job_waits_and_says_what_to_do(lives: Lives) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new", has_store=False) as broker:
        await broker.actors.connect(make_node("n2"))
        await broker.actors.pass_time(61)
        job = await broker.actors.job(job.id)
        assert (job.state, job.awaits_copy) == (JobState.PENDING, True)
        assert job.store_problem.endswith("the broker runs without one; start it with --artefacts")
    async with lives.life("next", has_store=False) as broker:
        job = await broker.actors.job(job.id)
        assert job.reason.endswith("the broker runs without one; start it with --artefacts")


async def test_a_store_has_bounded_room(lives: Lives) -> None:
    async with lives.life("first", limit=600) as broker:
        await broker.actors.connect()
        large, small = await trained(broker), await trained(broker, "other")
        await broker.copied(large.run_id, b"x" * 1000)
        await broker.copied(small.run_id, b"learnt")
        small = await broker.look(small)
        large = await broker.actors.job(large.id)
        assert (small.stored is not None, large.stored) == (True, None)
        assert "TIERCEL_ARTEFACTS_BYTES" in large.store_problem


async def test_a_broker_without_room_waits_for_it(lives: Lives) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new", room=10) as broker:
        await broker.actors.pass_time(61)
        job = await broker.look(job)
        assert job.awaits_copy
        assert "TIERCEL_CHECKPOINTS_BYTES" in job.reason


async def test_a_copy_that_the_broker_cannot_read_keeps_no_other_waiting(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        damaged, fine = await trained(broker), await trained(broker, "other")
        await broker.copied(damaged.run_id, b"learnt")
        await broker.copied(fine.run_id, b"learnt")
        (lives.folder / "first" / damaged.id).write_bytes(b"what the disk made of it")
        fine = await broker.look(fine)
        assert fine.stored is not None
        assert (
            await broker.actors.job(damaged.id)
        ).store_problem == "the broker's own copy of the checkpoint is damaged"


async def test_who_has_lost_the_store_to_a_newer_life_changes_nothing_there(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        job = await broker.look(job)
        await Ownership(lives.artefacts, "database", "newer").ensure(1.0)
        before = dict(lives.artefacts.contents)
        await broker.copied(job.run_id, b"newer")
        with pytest.raises(ConflictError, match="another broker with the same database"):
            await broker.keeper.look()
        await broker.actors.service.cancel("alice", job.id)
        await broker.actors.exit(job.run_id)
        with pytest.raises(ConflictError):
            await broker.keeper.look()
        assert lives.artefacts.contents == before


async def test_a_newer_copy_that_came_meanwhile_stays(lives: Lives) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new") as broker:
        await broker.actors.connect(runs=[job.run_id])
        await broker.actors.alive(job.run_id)
        assert (await broker.actors.job(job.id)).awaits_copy
        await broker.copied(job.run_id, b"newer")
        job = await broker.look(job)
        assert not job.awaits_copy
        assert broker.content_of(job) == b"newer"
        assert b"".join(broker.checkpoints.read(job.run_id)) == b"newer"


async def test_where_nothing_may_be_removed_newer_copies_are_stored_all_the_same(lives: Lives) -> None:
    lives.artefacts.keeps_all = True
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        for content in (b"older", b"newer"):
            await broker.copied(job.run_id, content)
            with contextlib.suppress(UnavailableError):
                await broker.keeper.look()
            job = await broker.actors.job(job.id)
            assert broker.content_of(job) == content
        assert (len(broker.artefacts.contents), job.store_problem) == (2, "")


async def test_a_store_that_somebody_emptied_is_filled_again(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        job, other = await trained(broker), await trained(broker, "other")
        for each in (job, other):
            await broker.copied(each.run_id, b"learnt")
        await broker.look(job)
        lives.artefacts.contents.clear()
        lives.artefacts.marks.clear()
        await broker.copied(other.run_id, b"newer")
        await broker.look(other)
        job, other = await broker.look(job), await broker.look(other)
        assert (broker.content_of(job), broker.content_of(other)) == (b"learnt", b"newer")


async def test_one_on_which_the_store_fails_again_and_again_keeps_no_other_waiting(lives: Lives) -> None:
    async with lives.life("first") as broker:
        await broker.actors.connect()
        large, small = await trained(broker), await trained(broker, "other")
        await broker.copied(large.run_id, b"x" * 2000)
        await broker.copied(small.run_id, b"learnt")
        lives.artefacts.slow_above = 1000
        with pytest.raises(UnavailableError):
            await broker.keeper.look()
        with contextlib.suppress(UnavailableError):
            await broker.keeper.look()
        assert broker.content_of(await broker.actors.job(small.id)) == b"learnt"


async def test_a_job_that_ends_while_its_copy_comes_back_leaves_nothing(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lives.life("lost") as broker:
        await broker.actors.connect()
        job = await trained(broker)
        await broker.copied(job.run_id, b"learnt")
        await broker.look(job)
    async with lives.life("new") as broker:
        await broker.actors.pass_time(61)
        get = lives.artefacts.get

        async def slowly(*arguments: Any) -> None:
            await broker.actors.service.cancel("alice", job.id)
            await broker.actors.settle()
            await get(*arguments)

        monkeypatch.setattr(lives.artefacts, "get", slowly)
        await broker.look(job)
        await broker.keeper.look()
        assert not list((lives.folder / "new").iterdir())
        assert not lives.artefacts.contents
