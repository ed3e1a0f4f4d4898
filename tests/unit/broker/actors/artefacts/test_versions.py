"""Versions in the artefact store: they get there by themselves, and answer again when all their nodes are gone."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Self

import pytest

from testing.actors import running, running_actors
from testing.artefacts import MemoryArtefacts
from testing.clock import ManualClock
from testing.replica_nodes import ReplicaNodes, endpoint, version_store
from tests.unit.broker.actors.test_replicas import answers, staged
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.actors.artefacts.versions import VersionKeeper
from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.endpoints import DeliveryState, Endpoint
from tiercel.core.errors import UnavailableError
from tiercel.core.jobs import Job


class Life:
    """One life of a broker with a folder of its own, over a database and an artefact store that outlive it."""

    def __init__(self, place: Place, name: str, limit: int) -> None:
        self._place = place
        self._limit = limit
        self.held = version_store(place.folder / name)
        self._actors = running_actors(place.store, place.clock, versions=self.held, has_store=True)

    async def __aenter__(self) -> Self:
        await self._place.store.open()
        actors = await self._actors.__aenter__()
        self.actors, self.nodes = actors, ReplicaNodes(actors)
        ownership = Ownership(self._place.artefacts, "database", str(id(self)))
        own = OwnArtefacts(self._place.artefacts, ownership, actors.clock, self._limit)
        self._keeper = ArtefactKeeper(own, [VersionKeeper(own, self.held, actors.registry)], actors.clock)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._actors.__aexit__(*error)  # type: ignore[arg-type]
        await self._place.store.close()

    async def look(self, rounds: int = 4) -> None:
        """Time passes: nodes do what is wanted, and the keeper looks."""
        for _ in range(rounds):
            await self.actors.pass_time(0.5)
            for node in self.nodes.nodes.values():
                await self.actors.heartbeat(node.actor, node.epoch)
            await self.nodes.obey(rounds=2)
            await self._keeper.look()
            await self.actors.settle()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint."""
        return endpoint(self.actors)


class Place:
    """What outlives brokers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(sqlite_url(folder / "broker.sqlite"))
        self.clock = ManualClock()
        self.artefacts = MemoryArtefacts()

    def life(self, name: str, limit: int = 10_000) -> Life:
        """A life of the broker."""
        return Life(self, name, limit)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def delivered_twice(life: Life) -> None:
    await life.nodes.connect("n1")
    job = await running(life.actors)
    for tier, value in ((1, 0.85), (2, 0.95)):
        await staged(life.nodes, job, tier, value)
        await answers(life.nodes, job, tier, value)
    await life.look()
    await life.actors.service.cancel("alice", job.id)
    await life.actors.exit(job.run_id)


async def test_what_was_delivered_is_stored_by_itself_and_the_broker_holds_none_of_it(place: Place) -> None:
    async with place.life("first") as life:
        await delivered_twice(life)
        stored = [version.stored for version in life.endpoint.versions]
        assert len(place.artefacts.contents) == len(stored) == 2
        assert {each.sha256 for each in stored if each is not None} == set(place.artefacts.contents)
        assert not life.held.held("digits")
        made = len(place.artefacts.calls)
        await life.look()
        assert len(place.artefacts.calls) == made, "who has nothing to do asks nothing"
        await life.actors.service.endpoints.delete("alice", "digits")
        await life.look()
        assert not place.artefacts.contents


async def test_a_machine_that_takes_the_place_of_the_lost_one_gets_the_version_and_can_go_back(place: Place) -> None:
    async with place.life("first") as life:
        await delivered_twice(life)
    async with place.life("second") as life:
        await life.nodes.connect("n1")
        assert life.nodes.nodes["n1"].copies == {}
        await life.look()
        assert life.nodes.answering() == {"n1": 2}
        assert life.nodes.nodes["n1"].copies[2] == f"{2:064x}"
        assert not life.held.held("digits"), "it was on its way only"
        await life.actors.service.endpoints.change_versions("alice", "digits", VersionChosen(1))
        await life.look()
        assert life.nodes.nodes["n1"].copies[1] == f"{1:064x}"


async def test_when_the_only_node_is_lost_another_one_answers_with_what_the_store_has(place: Place) -> None:
    async with place.life("first") as life:
        await delivered_twice(life)
        await life.nodes.connect("n2")
        del life.nodes.nodes["n1"]  # nothing is heard of it any more
        for _ in range(30):
            await life.look(rounds=2)
        assert life.nodes.answering() == {"n2": 2}
        assert life.endpoint.replica_nodes == ("n2",)


async def test_a_version_that_is_damaged_there_is_stored_anew_from_a_node_that_has_it(place: Place) -> None:
    async with place.life("first") as life:
        await delivered_twice(life)
        for name in place.artefacts.contents:
            place.artefacts.contents[name] = b"something else"
    async with place.life("second") as life:
        await life.nodes.connect("n1")
        await life.look()
        assert life.nodes.answering() == {"n1": 0}, "nothing that is damaged is given to a node"
        assert {version.version: version.stored is None for version in life.endpoint.versions}[2]
        life.nodes.nodes["n1"].copies = {1: f"{1:064x}", 2: f"{2:064x}"}
        await life.nodes.say("n1")
        await life.look(rounds=6)
        assert all(version.stored is not None for version in life.endpoint.versions)
        assert sorted(life.nodes.nodes["n1"].copies) == [1, 2]


async def test_while_the_store_is_away_versions_wait_on_their_nodes_and_one_at_the_broker(place: Place) -> None:
    async with place.life("first") as life:
        place.artefacts.failing = failures.no_answer("memory", "ConnectTimeoutError")
        with pytest.raises(UnavailableError):
            await delivered_twice(life)
        assert len(life.held.held("digits")) <= 1
        assert life.nodes.answering() == {"n1": 2}, "delivered all the same"
        place.artefacts.failing = None
        await life.look()
        assert len(place.artefacts.contents) == 2


async def test_what_does_not_fit_is_left_out_and_the_next_one_is_stored(place: Place) -> None:
    async with place.life("first", limit=300) as life:
        await delivered_twice(life)
        assert [version.stored is not None for version in life.endpoint.versions] == [False, True], "what answers first"


async def delivers(life: Life, job: Job, version: int, tier: int, value: float) -> None:
    """A job of a variant reaches a tier, and its node answers with that."""
    sha256, known, node = f"{version:064x}", f"{job.id}-tier-{tier}", life.nodes.nodes["n1"]
    await life.actors.report(job.run_id, value, tier)
    await life.actors.delivery(known, DeliveryState.LOADING, value=value, sha256=sha256)
    node.variants[job.spec.variant], node.copies[version] = version, sha256
    await life.nodes.say("n1")
    await life.actors.delivery(known, DeliveryState.DELIVERED, value=value, sha256=sha256)


async def variants_delivered(life: Life, *, then_cancelled: bool = True) -> dict[str, Job]:
    """Two variants of one endpoint on one node: version 1 and then 3 of small, 2 of large."""
    await life.nodes.connect("n1")
    jobs = {name: await running(life.actors, variant=name) for name in ("small", "large")}
    await life.actors.pass_time(5.0)
    for version, (name, tier, value) in enumerate([("small", 1, 0.85), ("large", 1, 0.86), ("small", 2, 0.95)], 1):
        job = jobs[name] = await life.actors.job(jobs[name].id)
        await life.actors.alive(job.run_id)
        await delivers(life, job, version, tier, value)
    await life.look(rounds=8)
    for job in jobs.values() if then_cancelled else ():
        await life.actors.service.cancel("alice", job.id)
        await life.actors.exit((await life.actors.job(job.id)).run_id)
    return jobs


async def test_versions_of_variants_are_stored_and_the_broker_holds_none_of_them(place: Place) -> None:
    async with place.life("first") as life:
        await variants_delivered(life)
        assert [each.stored is not None for each in life.endpoint.versions] == [True] * 3
        assert len(place.artefacts.contents) == 3
        assert not life.held.held("digits")
        made = len(place.artefacts.calls)
        await life.look()
        assert len(place.artefacts.calls) == made, "who has nothing to do asks nothing"
        assert life.nodes.nodes["n1"].variants == {"small": 3, "large": 2}


async def test_a_machine_that_takes_the_place_of_the_lost_one_gets_all_variants_and_can_go_back(place: Place) -> None:
    async with place.life("first") as life:
        await variants_delivered(life)
    async with place.life("second") as life:
        await life.nodes.connect("n1")
        assert life.nodes.nodes["n1"].copies == {}
        await life.look(rounds=6)
        assert life.nodes.nodes["n1"].variants == {"small": 3, "large": 2}
        assert not life.held.held("digits"), "they were on their way only"
        await life.actors.service.endpoints.change_versions("alice", "digits", VersionChosen(1))
        await life.look(rounds=6)
        assert life.nodes.nodes["n1"].variants == {"small": 1, "large": 2}


async def test_when_the_only_node_is_lost_another_one_answers_with_all_variants_and_the_first_one_stops(
    place: Place,
) -> None:
    async with place.life("first") as life:
        await variants_delivered(life)
        await life.nodes.connect("n2", "n3")
        lost = life.nodes.nodes.pop("n1")  # nothing is heard of it any more
        for _ in range(30):
            await life.look(rounds=2)
        answering = {name: node.variants for name, node in life.nodes.nodes.items() if node.variants}
        assert list(answering.values()) == [{"small": 3, "large": 2}], "on one of them"
        (home,) = answering
        assert life.endpoint.node_id == home
        life.nodes.nodes["n1"] = lost  # it was cut off, and comes back with all that it had
        await life.nodes.connect("n1")
        await life.look(rounds=6)
        assert lost.variants == {"small": 0, "large": 0}
        assert life.nodes.nodes[home].variants == {"small": 3, "large": 2}
        assert life.endpoint.node_id == home


async def test_a_node_that_comes_back_before_the_store_has_given_anything_answers_with_what_it_has(
    place: Place,
) -> None:
    async with place.life("first") as life:
        await variants_delivered(life)
        await life.nodes.connect("n2")
        lost = life.nodes.nodes.pop("n1")
        place.artefacts.failing = failures.no_answer("memory", "ConnectTimeoutError")
        for _ in range(30):
            with contextlib.suppress(UnavailableError):
                await life.look(rounds=2)
        assert life.endpoint.node_id == "n2"
        assert life.nodes.nodes["n2"].copies == {}
        life.nodes.nodes["n1"] = lost
        await life.nodes.connect("n1")
        for _ in range(3):
            with contextlib.suppress(UnavailableError):
                await life.look(rounds=2)
        assert life.endpoint.node_id == "n1"
        assert lost.variants == {"small": 3, "large": 2}
        assert sorted(lost.copies) == [1, 2, 3]


async def test_a_job_whose_node_was_lost_goes_on_where_the_variants_answer_by_now(place: Place) -> None:
    async with place.life("first") as life:
        job = (await variants_delivered(life, then_cancelled=False))["large"]
        await life.nodes.connect("n2")
        cut_off = life.nodes.nodes.pop("n1")
        for _ in range(30):
            await life.look(rounds=2)
        assert life.nodes.nodes["n2"].variants == {"small": 3, "large": 2}
        life.nodes.nodes["n1"] = cut_off
        await life.nodes.connect("n1")  # its run is gone
        await life.look()
        assert cut_off.copies == {}, "another node answers"
        assert (await life.actors.job(job.id)).node_id == "n2"


async def test_a_broker_that_began_anew_waits_for_the_node_of_the_variants(place: Place) -> None:
    async with place.life("first") as life:
        await variants_delivered(life)
        await life.nodes.connect("n2")
        before = life.nodes.nodes["n1"]
    async with place.life("second") as life:
        await life.nodes.connect("n2")
        await life.look()
        assert life.endpoint.node_id == "n1"
        life.nodes.nodes["n1"] = before
        await life.nodes.connect("n1")
        await life.look()
        assert (life.endpoint.node_id, before.variants) == ("n1", {"small": 3, "large": 2})
        assert life.nodes.nodes["n2"].variants == {}


async def test_variants_of_which_one_is_not_stored_stay_where_they_are(place: Place) -> None:
    async with place.life("first", limit=300) as life:
        await variants_delivered(life)
        assert [each.stored is not None for each in life.endpoint.versions].count(True) == 1
        await life.nodes.connect("n2")
        del life.nodes.nodes["n1"]
        for _ in range(30):
            await life.look(rounds=2)
        assert life.endpoint.node_id == "n1", "it has what nobody else has"
        assert life.nodes.nodes["n2"].variants == {}
