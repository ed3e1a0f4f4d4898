"""Jobs that feed variants of one endpoint: who may, where they go, what is live, and what a restart leaves of it."""

from __future__ import annotations

import pytest

from testing.actors import ALICE, BOB, Actors, make_node, running_actors, submit, wanted_of
from testing.jobs import make_spec
from testing.replica_nodes import endpoint
from tiercel.broker.actors.admission import MAX_VARIANTS, check_endpoint
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import Endpoint, EndpointUsage, Version
from tiercel.core.errors import EndpointBusyError, InvalidSpecError
from tiercel.core.events import EndpointEvent
from tiercel.core.jobs import Job, JobState, Resources

GIB = 1024**3


async def delivered(actors: Actors, job: Job, node_id: str = "n1") -> None:
    """The job's first tier answers."""
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.85)
    await actors.delivered(f"{job.id}-tier-1", node_id)


def version(number: int, variant: str) -> Version:
    return Version(number, "j", 1, "accuracy", 0.9, 0.0, "", None, variant)


async def test_each_variant_has_a_live_version_and_numbers_are_the_endpoints(actors: Actors, store: Store) -> None:
    node, epoch = await actors.connect()
    small = await submit(actors, variant="small")
    large = await submit(actors, variant="large")
    await actors.pass_time(5.0)
    small, large = await actors.job(small.id), await actors.job(large.id)
    await delivered(actors, small)
    await actors.alive(large.run_id)
    await actors.report(large.run_id, 0.85)
    wanted = await wanted_of(node, epoch)
    assert [(each.delivery.variant, each.delivery.version) for each in wanted.deliveries] == [("large", 2)]
    await actors.delivered(f"{large.id}-tier-1")
    await actors.report(small.run_id, 0.95, 2)
    await actors.delivered(f"{small.id}-tier-2")
    assert [(each.version, each.variant) for each in endpoint(actors).versions] == [
        (1, "small"),
        (2, "large"),
        (3, "small"),
    ]
    assert [(each.variant, each.version) for each in endpoint(actors).live] == [("large", 2), ("small", 3)]
    assert await store.load_endpoints() == [endpoint(actors)]


async def test_a_killed_broker_knows_variants_again(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        small = await submit(actors, variant="small")
        await delivered(actors, small)
        large = await submit(actors, variant="large")
        await actors.report((await actors.job(large.id)).run_id, 0.85)
        before = endpoint(actors)
        assert before.next_version == 3
    async with running_actors(store) as actors:
        assert endpoint(actors) == before
        told = [event.version.variant for event in actors.events if isinstance(event, EndpointEvent)]
        assert told == ["small"]
        await actors.connect()
        await delivered(actors, await actors.job(large.id))
        assert [(each.variant, each.version) for each in endpoint(actors).live] == [("large", 2), ("small", 1)]
        with pytest.raises(EndpointBusyError, match="variant: 'large' of endpoint 'digits' is being fed by job"):
            await submit(actors, variant="large")


async def test_one_unfinished_job_feeds_a_variant(actors: Actors) -> None:
    job = await submit(actors, variant="small")
    await submit(actors, variant="large")
    with pytest.raises(EndpointBusyError, match=f"'small' of endpoint 'digits' is being fed by job {job.id}") as caught:
        await submit(actors, variant="small")
    assert caught.value.field == "variant"
    await actors.service.cancel("alice", job.id)
    await submit(actors, variant="small")
    with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
        await submit(actors, tenant=BOB, variant="third")


async def test_an_endpoint_has_variants_or_none(actors: Actors) -> None:
    await actors.connect()
    plain = await submit(actors, "plain")
    with pytest.raises(EndpointBusyError, match="endpoint 'plain' has no variants but versions of its own"):
        await submit(actors, "plain", variant="small")
    await delivered(actors, plain)
    await actors.exit(plain.run_id)
    with pytest.raises(EndpointBusyError, match="endpoint 'plain' has no variants"):
        await submit(actors, "plain", variant="small")
    await submit(actors, "digits", variant="small")
    with pytest.raises(EndpointBusyError, match=r"'digits' has variants \(small\); name one of them"):
        await submit(actors, "digits")
    # Where nothing was delivered nothing is decided.
    gone = await submit(actors, "open")
    await actors.exit((await actors.job(gone.id)).run_id, 1)
    await submit(actors, "open", variant="small")


def test_an_endpoint_has_no_more_variants_than_are_served() -> None:
    known = Endpoint("digits", "alice", versions=tuple(version(n, f"v{n}") for n in range(1, MAX_VARIANTS + 1)))
    check_endpoint(ALICE, make_spec(variant="v1"), known, [])
    with pytest.raises(EndpointBusyError, match="more are not taken"):
        check_endpoint(ALICE, make_spec(variant="one-more"), known, [])


async def test_all_variants_go_to_one_node(actors: Actors) -> None:
    jobs = [await submit(actors, variant=variant) for variant in ("a", "b", "c")]
    await actors.connect(make_node("n1"))
    # Those that follow the first one need not wait for the scheduler's next interval.
    assert [(await actors.job(job.id)).node_id for job in jobs] == ["n1"] * 3
    await actors.connect(make_node("n2"))
    late = await submit(actors, variant="d")
    assert late.node_id == "n1"
    # Without a variant the other node would have been the emptier one.
    assert (await submit(actors, "other")).node_id == "n2"


async def test_a_variant_waits_for_the_node_where_the_others_answer(actors: Actors) -> None:
    await actors.connect()
    first = await submit(actors, variant="small", resources=Resources(1.0, 6 * GIB))
    await delivered(actors, first)
    await actors.connect(make_node("n2", memory_bytes=64 * GIB))
    second = await submit(actors, variant="large", resources=Resources(1.0, 4 * GIB))
    await actors.pass_time(10.0)
    waiting = await actors.job(second.id)
    assert waiting.state is JobState.PENDING
    assert "waits for memory" in waiting.reason
    with pytest.raises(InvalidSpecError, match="more than any node that could run it has"):
        await submit(actors, variant="huge", resources=Resources(1.0, 16 * GIB))
    await actors.exit(first.run_id, 0)
    await actors.pass_time(10.0)
    assert (await actors.job(second.id)).node_id == "n1"


async def test_a_variant_whose_node_is_away_says_so(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        first = await submit(actors, variant="small")
        await delivered(actors, first)
        await actors.exit(first.run_id, 0)
    async with running_actors(store) as actors:
        await actors.connect(make_node("n2"))
        second = await submit(actors, variant="large")
        await actors.pass_time(10.0)
        waiting = await actors.job(second.id)
        assert waiting.state is JobState.PENDING
        assert waiting.reason == "waits for node n1, where the variants of endpoint digits are"
        await actors.connect()
        assert (await actors.job(second.id)).node_id == "n1"


async def test_what_each_variant_answered_is_known(actors: Actors) -> None:
    await actors.connect()
    small, large = await submit(actors, variant="small"), await submit(actors, variant="large")
    await actors.pass_time(5.0)
    for job in (small, large):
        await delivered(actors, await actors.job(job.id))
    for counts in ({"small": 2}, {"small": 1, "large": 1}):
        usage = EndpointUsage("digits", 1.0, 4, 4, 0.1, 0.1, answered_by=counts)
        actors.agents.measure_endpoints("n1", (usage,))
    await actors.pass_time(5.0)
    load = actors.service.endpoints.load("digits")
    assert load is not None
    assert load.answered_parts == {"large": 0.25, "small": 0.75}
