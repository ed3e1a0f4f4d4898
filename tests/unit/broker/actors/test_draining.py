"""Nodes that are drained, in the actors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.actors import Actors, make_node, running, running_actors, submit, wanted_of
from tiercel.broker.actors.maintenance import LeftThere, Maintenance
from tiercel.broker.store.drains import DrainStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import NotFoundError
from tiercel.core.events import NodeEvent
from tiercel.core.jobs import JobState
from tiercel.core.nodes import Drain


@pytest.fixture
async def sql(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as opened:
        yield opened


@pytest.fixture
async def actors(sql: Store) -> AsyncIterator[Actors]:
    async with running_actors(sql) as made:
        yield made


@pytest.fixture
def maintenance(sql: Store, actors: Actors) -> Maintenance:
    return Maintenance(DrainStore(sql), actors.registry)


def drain_of(actors: Actors, node_id: str = "n1") -> Drain:
    return actors.registry.nodes[node_id].node.drain


async def test_jobs_wait_for_a_drained_node_until_it_is_drained_no_more(
    actors: Actors, maintenance: Maintenance
) -> None:
    await actors.connect()
    assert await maintenance.drain("n1", migrate=False) == LeftThere(0, ())
    job = await submit(actors)
    assert job.state is JobState.PENDING
    assert job.reason == "waits for a node: nothing new starts on n1, which could run it, while drained"
    await maintenance.undrain("n1")
    await actors.pass_time(1)
    assert (await actors.job(job.id)).state is JobState.STARTING
    told = [event.drain for event in actors.events if isinstance(event, NodeEvent)]
    assert told == [Drain.NO, Drain.WAIT, Drain.NO]


async def test_what_runs_on_a_drained_node_goes_on_there_or_moves(actors: Actors, maintenance: Maintenance) -> None:
    first, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.1)
    await actors.connect(make_node("n2"))
    assert await maintenance.drain("n1", migrate=False) == LeftThere(1, ())
    await actors.pass_time(5)
    assert not (await actors.job(job.id)).is_moving
    await actors.heartbeat(first, epoch)
    await maintenance.drain("n1", migrate=True)
    await actors.pass_time(1)
    moving = await actors.job(job.id)
    assert moving.moving_to is not None
    assert moving.moving_to.node_id == "n2"
    assert [run.job.id for run in (await wanted_of(first, epoch)).runs] == [job.id]


async def test_a_job_on_a_drained_node_says_so_and_why_it_is_there_still(
    actors: Actors, maintenance: Maintenance
) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)

    async def told() -> str:
        return actors.service.explained(await actors.job(job.id)).reason

    assert await told() == ""
    await maintenance.drain("n1", migrate=False)
    begin = "node n1 is drained, where nothing new starts; this job"
    assert await told() == f"{begin} runs there to its end"
    await maintenance.drain("n1", migrate=True)
    assert await told() == f"{begin} moves to another one once it has reported and hands over no model"
    await actors.report(job.run_id, 0.1)
    await actors.pass_time(5)
    await actors.heartbeat(node, epoch)
    assert await told() == (
        f"{begin} moves to another one as soon as that has room for it "
        "(waits for a node: nothing new starts on n1, which could run it, while drained)"
    )
    await actors.connect(make_node("n2"))
    await actors.pass_time(1)
    assert (await told()).startswith("moving to node n2")


async def test_a_job_of_a_variant_says_whom_it_follows(actors: Actors, maintenance: Maintenance) -> None:
    await actors.connect()
    job = await running(actors, variant="small")
    await actors.report(job.run_id, 0.1)
    await maintenance.drain("n1", migrate=True)
    told = actors.service.explained(await actors.job(job.id)).reason
    assert "this job follows the variants of its endpoint, which move once another node has the files" in told


async def test_an_agent_that_comes_back_finds_its_node_drained_also_after_a_restart(
    sql: Store, actors: Actors, maintenance: Maintenance
) -> None:
    await actors.connect()
    await maintenance.drain("n1", migrate=True)
    await actors.connect()
    assert drain_of(actors) is Drain.MOVE
    async with running_actors(sql) as later:
        again = Maintenance(DrainStore(sql), later.registry)
        await again.start()
        assert await again.drain("n1", migrate=False) == LeftThere(0, ())  # known, though it has not connected
        await later.connect()
        assert drain_of(later) is Drain.WAIT


async def test_a_node_that_nobody_knows_is_not_drained(actors: Actors, maintenance: Maintenance) -> None:
    for call in (maintenance.drain("n9", migrate=True), maintenance.undrain("n9")):
        with pytest.raises(NotFoundError, match="no node 'n9'"):
            await call
    assert "n9" not in actors.registry.nodes


async def test_a_removed_node_is_forgotten_unless_something_is_wanted_of_it(
    actors: Actors, maintenance: Maintenance
) -> None:
    await actors.connect()
    await actors.connect(make_node("n2"))
    job = await running(actors)
    other = "n2" if job.node_id == "n1" else "n1"
    for node_id in ("n1", "n2"):
        await maintenance.drain(node_id, migrate=False)
        await maintenance.forget(node_id)
    await actors.settle()
    assert [node.id for node in actors.service.nodes()] == [job.node_id]
    assert drain_of(actors, job.node_id) is Drain.NO
    last = [event for event in actors.events if isinstance(event, NodeEvent) and event.node_id == other][-1]
    assert (last.online, last.drain) == (False, Drain.NO)
    await actors.connect(make_node(other))  # another machine of its name
    assert drain_of(actors, other) is Drain.NO
