"""Delay objectives of endpoints, what is measured of them, and what they may use, through all actors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from testing.actors import ALICE, Actors, running_actors
from testing.jobs import make_spec
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.scheduling.dqoes.policy import DqoesPolicy, DqoesSettings
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import EndpointLoad, EndpointUsage
from tiercel.core.events import EndpointMeasured, EndpointShareChanged
from tiercel.core.jobs import Job
from tiercel.core.shares import Share


@pytest.fixture
async def actors(store: Store) -> AsyncIterator[Actors]:
    async with running_actors(store, policy=DqoesPolicy(DqoesSettings(interval=1.0))) as started:
        yield started


async def live(actors: Actors, endpoint: str, objective: float | None = None) -> Job:
    """A job whose first tier is delivered, and that trains on."""
    spec = make_spec(endpoint=endpoint, endpoint_objective_seconds=objective)
    job = await actors.service.submit(ALICE, spec, "")
    job = await actors.job(job.id)
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.85)
    await actors.delivered(f"{job.id}-tier-1")
    return job


async def limits_of(node: NodeActor, epoch: int) -> dict[str, Share]:
    wanted = await node.wait_wanted(0, epoch)
    assert wanted is not None
    return dict(wanted.endpoints.shares) if wanted.endpoints is not None else {}


def usage(endpoint: str, delay: float, cores: float) -> EndpointUsage:
    """Ten answers a second for a second, each after ``delay`` seconds."""
    return EndpointUsage(endpoint, 1.0, 10, 10, 10 * delay, cores)


async def test_an_objective_belongs_to_the_endpoint_and_outlives_jobs_and_restarts(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        first = await live(actors, "digits", 0.05)
        await actors.exit(first.run_id, 1)
        second = await live(actors, "digits")
        assert actors.service.endpoints.of("alice")[0].objective_seconds == 0.05
        await actors.exit(second.run_id, 1)
        await live(actors, "digits", 0.02)
        assert actors.service.endpoints.of("alice")[0].objective_seconds == 0.02
    async with running_actors(store) as actors:
        (endpoint,) = actors.service.endpoints.of("alice")
        assert (endpoint.objective_seconds, endpoint.live_version) == (0.02, 3)
        (view,) = actors.registry.scheduler.endpoints.views(["n1"])
        assert (view.name, view.objective_seconds, view.quality) == ("digits", 0.02, 0.9)


async def test_measured_endpoints_get_limits_that_the_node_is_told(actors: Actors) -> None:
    node, epoch = await actors.connect()
    await live(actors, "fast", 0.1)
    await live(actors, "slow", 0.1)
    await live(actors, "free")
    assert await limits_of(node, epoch) == {}
    seen = [usage("fast", 0.05, 2.0), usage("slow", 0.2, 1.0), usage("free", 0.01, 0.5)]
    actors.agents.measure_endpoints("n1", tuple(seen))
    await actors.pass_time(5.0)
    limits = await limits_of(node, epoch)
    assert set(limits) == {"fast", "slow"}
    # a tenth of what the fast one used goes to the slow one, beside what nobody uses
    assert limits["fast"].cpu_cap_cores == pytest.approx(1.8)
    slow = limits["slow"].cpu_cap_cores
    assert slow is not None
    assert 1.0 < slow < 1.8
    assert actors.service.endpoints.share("fast") == limits["fast"]
    assert actors.service.endpoints.share("free") is None
    assert actors.service.endpoints.load("slow") == EndpointLoad(10.0, 0.2, 1.0)
    jobs = [await actors.job(job.id) for job in await actors.service.jobs_of("alice", active_only=True)]
    weights = sum(job.share.cpu_weight for job in jobs if job.share) + sum(s.cpu_weight for s in limits.values())
    assert weights == pytest.approx(1.0)


async def test_limits_are_kept_for_a_node_that_comes_back_and_lifted_from_an_idle_endpoint(actors: Actors) -> None:
    node, epoch = await actors.connect()
    await live(actors, "slow", 0.1)
    actors.agents.measure_endpoints("n1", (usage("slow", 0.2, 1.0),))
    await actors.pass_time(5.0)
    limits = await limits_of(node, epoch)
    assert set(limits) == {"slow"}
    node, again = await actors.connect()
    assert again == epoch + 1
    assert await limits_of(node, again) == limits
    actors.agents.measure_endpoints("n1", ())
    await actors.pass_time(5.0)
    assert await limits_of(node, again) == {}
    assert actors.service.endpoints.load("slow") == EndpointLoad()


async def test_after_a_restart_endpoints_keep_what_they_have_until_something_is_measured(store: Store) -> None:
    async with running_actors(store, policy=DqoesPolicy(DqoesSettings(interval=1.0))) as actors:
        await actors.connect()
        await live(actors, "slow", 0.1)
    async with running_actors(store, policy=DqoesPolicy(DqoesSettings(interval=1.0))) as actors:
        node, epoch = await actors.connect()
        await actors.pass_time(5.0)
        wanted = await node.wait_wanted(0, epoch)
        assert wanted is not None
        assert wanted.endpoints is None
        actors.agents.measure_endpoints("n1", (usage("slow", 0.2, 1.0),))
        await actors.pass_time(5.0)
        wanted = await node.wait_wanted(0, epoch)
        assert wanted is not None
        assert wanted.endpoints is not None
        assert [name for name, _ in wanted.endpoints.shares] == ["slow"]
        assert wanted.endpoints.objectives == (("slow", 0.1),)


async def test_decisions_about_endpoints_are_remembered_and_told(store: Store) -> None:
    async with running_actors(store, policy=DqoesPolicy(DqoesSettings(interval=1.0))) as actors:
        await actors.connect()
        await live(actors, "slow", 0.1)
        actors.agents.measure_endpoints("n1", (usage("slow", 0.2, 1.0),))
        await actors.pass_time(5.0)
        share = actors.service.endpoints.share("slow")
        actors.agents.measure_endpoints("n1", ())
        await actors.pass_time(5.0)
        lifted, given, *_ = await store.decisions_of("endpoint:slow", limit=9)
        assert (given.endpoint, given.job_id, given.node_id, given.policy) == ("slow", "", "n1", "dqoes")
        assert given.share == share
        assert (lifted.share.cpu_weight, lifted.share.cpu_cap_cores) == (1.0, None)
        told = [event for event in actors.events if isinstance(event, EndpointShareChanged)]
        assert [(event.endpoint, event.tenant, event.share) for event in told[-2:]] == [
            ("slow", "alice", share),
            ("slow", "alice", None),
        ]
        (measured,) = [event for event in actors.events if isinstance(event, EndpointMeasured)]
        assert (measured.endpoint, measured.objective_seconds, measured.load.delay_seconds) == ("slow", 0.1, 0.2)


async def test_nothing_is_measured_of_a_node_that_is_away(actors: Actors) -> None:
    await actors.connect()
    await live(actors, "slow", 0.1)
    actors.agents.measure_endpoints("n1", (usage("slow", 0.2, 1.0),))
    await actors.pass_time(3.0)
    assert actors.service.endpoints.load("slow") is not None
    await actors.pass_time(20.0)
    assert actors.service.endpoints.load("slow") is None
