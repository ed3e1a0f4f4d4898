"""The actors together: placement, deliveries, quotas, what tenants see."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from testing.actors import ALICE, BOB, GIB, Actors, make_node, running, running_actors, submit, wanted_of
from testing.jobs import make_spec
from tiercel.broker.actors import service
from tiercel.broker.lifecycle import report_bounds
from tiercel.broker.lifecycle.job_events import Reported
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.store.sql import Store
from tiercel.core.errors import (
    EndpointBusyError,
    InvalidSpecError,
    NotFoundError,
    QuotaExceededError,
)
from tiercel.core.events import EndpointEvent, JobEvent, StateChanged
from tiercel.core.jobs import JobState, Resources, TierState
from tiercel.core.nodes import Accelerator
from tiercel.core.tenants import PriorityClass, Tenant

# --- A whole life -----------------------------------------------------------------------------------------------------


async def test_a_job_is_placed_trained_delivered_and_completed(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await submit(actors)
    assert (job.state, job.node_id, job.run_id) == (JobState.STARTING, "n1", f"{job.id}-1")
    wanted = await wanted_of(node, epoch)
    assert [(run.run_id, run.stop) for run in wanted.runs] == [(job.run_id, False)]

    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.85)
    wanted = await wanted_of(node, epoch)
    assert [(d.delivery.id, d.delivery.version, d.run_id) for d in wanted.deliveries] == [
        (f"{job.id}-tier-1", 1, job.run_id)
    ]
    await actors.delivered(f"{job.id}-tier-1")
    assert (await wanted_of(node, epoch)).deliveries == ()
    (endpoint,) = actors.service.endpoints.of("alice")
    assert (endpoint.live_version, endpoint.node_id) == (1, "n1")

    await actors.report(job.run_id, 0.95, sequence=2)
    await actors.delivered(f"{job.id}-tier-2")
    assert [run.stop for run in (await wanted_of(node, epoch)).runs] == [True]
    await actors.exit(job.run_id)
    done = await actors.job(job.id)
    assert (done.state, done.reason) == (JobState.COMPLETED, "all 2 tiers delivered")
    assert (await wanted_of(node, epoch)).runs == ()
    assert [event.version.version for event in actors.events if isinstance(event, EndpointEvent)] == [1, 2]


async def test_events_are_numbered_without_gaps_and_stored_before_they_are_told(actors: Actors, store: Store) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.95)
    told = [event for event in actors.events if isinstance(event, JobEvent)]
    assert [event.sequence for event in told] == list(range(1, len(told) + 1))
    assert await store.events_after(0, limit=1000) == told
    states = [event.change.state for event in told if isinstance(event.change, StateChanged)]
    assert states == [JobState.PENDING, JobState.STARTING, JobState.RUNNING]


async def test_a_job_that_is_over_leaves_no_actor_behind(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.exit(job.run_id, 1)
    assert actors.registry.jobs == {}
    assert actors.registry.scheduler._jobs == {}
    assert (await actors.job(job.id)).state is JobState.FAILED, "it is found in the store"


async def test_what_a_node_says_of_a_job_that_is_over_is_forgotten(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.exit(job.run_id, 1)
    await actors.report(job.run_id, 0.99)
    await actors.delivered(f"{job.id}-tier-1")
    assert (await actors.job(job.id)).tiers[0].state is TierState.PENDING
    assert (await wanted_of(node, epoch)).runs == ()
    assert actors.service.endpoints.of("alice") == [], "nothing was delivered"


# --- Scheduling -------------------------------------------------------------------------------------------------------


async def test_memory_is_never_promised_twice(actors: Actors) -> None:
    await actors.connect(make_node(memory_bytes=3 * GIB))
    big = Resources(1.0, 2 * GIB)
    first, second = await asyncio.gather(
        *(actors.service.submit(ALICE, make_spec(endpoint=name, resources=big), "") for name in ("a", "b"))
    )
    states = {(await actors.job(job.id)).state for job in (first, second)}
    assert states == {JobState.STARTING, JobState.PENDING}
    (waiting,) = [job for job in await actors.service.jobs_of("alice", active_only=True) if not job.run_active]
    assert "waits for memory" in waiting.reason

    (placed,) = [job for job in await actors.service.jobs_of("alice", active_only=True) if job.run_active]
    await actors.exit(placed.run_id)
    assert (await actors.job(waiting.id)).state is JobState.STARTING, "an exit makes room at once"


async def test_decisions_are_recorded_once_with_their_reason(actors: Actors, store: Store) -> None:
    node, epoch = await actors.connect()
    first = await running(actors, "a")
    for _ in range(3):
        await actors.pass_time(9)
        await actors.heartbeat(node, epoch)
    assert [d.trigger for d in await store.decisions_of(first.id, limit=50)] == ["arrival"]
    await running(actors, "b")
    newest, oldest = await store.decisions_of(first.id, limit=50)
    assert (oldest.share.cpu_weight, newest.share.cpu_weight) == (1.0, 0.5)
    assert newest.share.reason == "equal share with 1 other job on this node"
    assert (newest.policy, newest.node_id) == ("fair", "n1")
    assert (await actors.job(first.id)).share == newest.share


async def test_a_waiting_job_is_placed_when_a_node_comes(actors: Actors) -> None:
    job = await submit(actors)
    assert (job.state, job.reason) == (JobState.PENDING, "waits for a node: none is online")
    await actors.connect()
    assert (await actors.job(job.id)).state is JobState.STARTING


async def test_a_silent_script_is_found_out(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors, report_timeout_seconds=30.0)
    for _ in range(4):
        await actors.pass_time(9)
        await actors.heartbeat(node, epoch)
    job = await actors.job(job.id)
    assert (job.state, job.stop_outcome) == (JobState.STOPPING, JobState.FAILED)
    assert "reported nothing for 30 s" in job.reason
    assert [run.stop for run in (await wanted_of(node, epoch)).runs] == [True]


async def test_a_share_that_stays_is_explained_by_what_is_the_case_now(store: Store) -> None:
    """A job alone has the whole node before its first tier and after it; the reason speaks of the second one then."""
    async with running_actors(store, policy=UtilityPolicy()) as actors:
        await actors.connect()
        job = await running(actors)
        await actors.report(job.run_id, 0.5)
        await actors.pass_time(5)
        before = actors.service.explained(await actors.job(job.id))
        assert before.share is not None
        assert "tier 1" in before.share.reason
        await actors.report(job.run_id, 0.85, sequence=2)
        await actors.delivered(f"{job.id}-tier-1")
        await actors.pass_time(1)
        after = actors.service.explained(await actors.job(job.id))
        assert after.share is not None
        assert after.share.same_limits(before.share)
        assert "tier 2" in after.share.reason
        assert "tier 1" not in after.share.reason
        await actors.exit(job.run_id, 1)
        ended = await actors.job(job.id)
        assert actors.service.explained(ended) is ended


async def test_cancelling_answers_with_the_job_as_it_is_then(actors: Actors) -> None:
    waiting = await submit(actors, "a")
    assert (await actors.service.cancel("alice", waiting.id)).state is JobState.CANCELLED
    await actors.connect()
    placed = await running(actors, "b")
    assert (await actors.service.cancel("alice", placed.id)).state is JobState.STOPPING
    await actors.exit(placed.run_id)
    assert (await actors.service.cancel("alice", placed.id)).state is JobState.CANCELLED


# --- Admission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resources": Resources(5.0)}, "resources.cpu_cores"),
        ({"resources": Resources(1.0, 9 * GIB)}, "resources.memory_bytes"),
        ({"runtime": "docker"}, "runtime"),
    ],
)
async def test_what_no_node_could_ever_run_is_refused(actors: Actors, spec: dict[str, Any], field: str) -> None:
    await actors.connect()
    with pytest.raises(InvalidSpecError) as caught:
        await actors.service.submit(ALICE, make_spec(**spec), "")
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")
    assert await actors.service.jobs_of("alice", active_only=False) == []
    assert actors.service.endpoints.of("alice") == [], "nothing is created"


async def test_an_accelerator_that_is_ill_may_be_waited_for(actors: Actors) -> None:
    await actors.connect(make_node(accelerators=(Accelerator("GPU-1", "One", 8 * GIB, problem="lost"),)))
    job = await submit(actors, resources=Resources(1.0, GIB, 1, 8 * GIB))
    assert job.state is JobState.PENDING
    for wanted in (Resources(1.0, GIB, 2), Resources(1.0, GIB, 1, 9 * GIB)):
        with pytest.raises(InvalidSpecError, match=r"resources\.accelerator"):
            await actors.service.submit(ALICE, make_spec(endpoint="b", resources=wanted), "")


async def test_an_image_that_no_node_has_is_refused(actors: Actors) -> None:
    await actors.connect(make_node(runtimes=("docker",), images=frozenset({"tiercel:latest"})))
    with pytest.raises(InvalidSpecError, match="image: no node has 'other'"):
        await actors.service.submit(ALICE, make_spec(image="other", runtime="docker"), "")
    assert (await submit(actors, image="tiercel", runtime="docker")).state is JobState.STARTING


async def test_needs_that_different_nodes_meet_are_refused(actors: Actors) -> None:
    await actors.connect(make_node("small", cpu_cores=1.0, runtimes=("docker",)))
    await actors.connect(make_node("large", cpu_cores=8.0, runtimes=("process",)))
    with pytest.raises(InvalidSpecError, match=r"resources.cpu_cores: 4 cores are more than any node that could"):
        await actors.service.submit(ALICE, make_spec(runtime="docker", resources=Resources(4.0)), "")


async def test_a_quota_counts_unfinished_jobs_of_the_tenant(actors: Actors) -> None:
    small = Tenant("alice", "a" * 32, max_active_jobs=1)
    job = await submit(actors, "a", small)
    with pytest.raises(QuotaExceededError, match="has 1 unfinished jobs and may have 1"):
        await actors.service.submit(small, make_spec(endpoint="b"), "")
    await submit(actors, "c", BOB)
    await actors.service.cancel("alice", job.id)
    await submit(actors, "b", small)


async def test_a_class_that_is_not_the_tenants_is_refused_with_those_that_are(actors: Actors) -> None:
    later = PriorityClass("later", -1)
    alice = Tenant("alice", "a" * 32, classes=(later,))
    spec = make_spec(endpoint="two", priority_class="urgent")
    for tenant, known in ((alice, "there is later"), (BOB, "there is none")):
        with pytest.raises(InvalidSpecError, match=known) as caught:
            await actors.service.submit(tenant, spec, "")
        assert caught.value.field == "priority_class"
    await actors.service.submit(alice, make_spec(priority_class="later"), "")


async def test_one_unfinished_job_feeds_an_endpoint(actors: Actors) -> None:
    job = await submit(actors)
    with pytest.raises(EndpointBusyError, match=f"being fed by job {job.id}"):
        await actors.service.submit(ALICE, make_spec(), "")
    await actors.service.cancel("alice", job.id)
    await submit(actors)


async def test_an_endpoint_belongs_to_the_tenant_who_made_it(actors: Actors) -> None:
    await submit(actors)
    with pytest.raises(EndpointBusyError, match="belongs to another tenant") as caught:
        await actors.service.submit(BOB, make_spec(), "")
    assert caught.value.field == "endpoint"


async def test_the_same_key_creates_one_job(actors: Actors) -> None:
    jobs = await asyncio.gather(*(actors.service.submit(ALICE, make_spec(), "key") for _ in range(5)))
    assert len({job.id for job in jobs}) == 1
    assert (await submit(actors, "b", BOB, "key")).id != jobs[0].id, "a key is the tenant's own"
    await actors.service.cancel("alice", jobs[0].id)
    again = await actors.service.submit(ALICE, make_spec(), "key")
    assert (again.id, again.state) == (jobs[0].id, JobState.CANCELLED)


async def test_the_number_of_versions_goes_on_with_the_next_job(actors: Actors) -> None:
    await actors.connect()
    for version in (1, 2):
        job = await running(actors)
        await actors.report(job.run_id, 0.85)
        await actors.delivered(f"{job.id}-tier-1")
        await actors.exit(job.run_id)
        assert (await actors.job(job.id)).tiers[0].version == version
    assert actors.service.endpoints.of("alice")[0].live_version == 2


async def test_a_client_that_vanishes_leaves_a_whole_job_or_none(actors: Actors) -> None:
    """The caller is cancelled at every point of the admission; what is stored is looked after."""
    await actors.connect()
    for steps in range(12):
        spec = make_spec(endpoint=f"e{steps}", resources=Resources(0.1, GIB // 4))
        call = asyncio.ensure_future(actors.service.submit(ALICE, spec, ""))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await actors.wait_admitted()
    stored = await actors.store.list_jobs()
    assert {job.id for job in stored} == set(actors.registry.jobs)
    assert len(stored) > 1, "an admission that has begun is seen through"
    assert {job.state for job in stored} == {JobState.STARTING}


# --- Tenants ----------------------------------------------------------------------------------------------------------


async def test_tenants_do_not_see_each_other(actors: Actors) -> None:
    job = await submit(actors, "alices")
    await submit(actors, "bobs", BOB)
    for call in (actors.service.find_job("bob", job.id), actors.service.cancel("bob", job.id)):
        with pytest.raises(NotFoundError, match="there is no job"):
            await call
    assert (await actors.job(job.id)).state is JobState.PENDING
    assert [known.id for known in await actors.service.jobs_of("alice", active_only=False)] == [job.id]
    assert [endpoint.name for endpoint in actors.service.endpoints.of("bob")] == ["bobs"]
    assert {event.tenant for event in await actors.store.events_after(0, tenant="bob", limit=100)} == {"bob"}


async def test_a_finished_job_of_another_tenant_is_not_found_either(actors: Actors) -> None:
    job = await submit(actors)
    await actors.service.cancel("alice", job.id)
    await actors.settle()
    with pytest.raises(NotFoundError):
        await actors.service.find_job("bob", job.id)
    with pytest.raises(NotFoundError):
        await actors.service.find_job("alice", "nonsense")


async def test_the_beginning_of_an_id_is_enough_where_it_is_one_jobs_alone(
    actors: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["ab12cd34", "ab99cd34", "abffffff"])
    monkeypatch.setattr(service, "secrets", SimpleNamespace(token_hex=lambda _: next(ids)))
    first, second = await submit(actors, "first"), await submit(actors, "second")
    await submit(actors, "bobs", BOB)
    find = actors.service.find_job
    assert [(await find("alice", part)).id for part in ("ab1", "ab9", "ab12cd34")] == [first.id, second.id, first.id]
    assert (await find("bob", "a")).id == "abffffff", "those of others do not count"
    with pytest.raises(InvalidSpecError, match="'ab' is the beginning of ab12cd34, ab99cd34; give more"):
        await find("alice", "ab")
    for wrong in ("abf", "AB1", "", "%", "ab12cd345"):
        with pytest.raises(NotFoundError):
            await find("alice", wrong)
    assert (await actors.service.cancel("alice", "ab9")).id == second.id
    await actors.settle()
    assert (await actors.service.resume(ALICE, "ab9")).id == second.id


async def test_a_run_that_reports_without_pause_has_a_bounded_number_of_reports_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, count = 20, 100
    monkeypatch.setattr(report_bounds, "REPORTS_AT_ONCE", most)
    async with running_actors(store) as actors:
        await actors.connect()
        job = await running(actors)
        for sequence in range(1, count + 1):
            value = 1.0 if sequence == count - 10 else 0.1
            message = Reported(job.run_id, sequence, sequence, {"accuracy": value}, actors.clock.now(), 1.0)
            await actors.agents.deliver_to_job("n1", job.run_id, message)
        after = await actors.job(job.id)
        assert len(await store.load_progress(job.id, limit=count)) == most + 1  # and the one that reached a tier
        assert (after.last_sequence, after.best_value, after.latest_value) == (count, 1.0, 0.1)
        assert after.tiers[0].state is TierState.REACHED
