"""A model that is less often right than was promised is trained again: once, whatever becomes of the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testing.actors import ALICE, TENANTS, Actors, running, running_actors, submit
from testing.clock import ManualClock
from testing.jobs import make_spec
from tiercel.broker.actors.endpoint_messages import AccessSet, PromisesJudged, RetrainingNoted, VersionChosen
from tiercel.broker.lifecycle import retraining
from tiercel.broker.progress.topics import message_of
from tiercel.broker.store.sql import Store
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.endpoints import DeliveryState, Endpoint, EndpointUsage
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import EndpointEvent, PromiseJudged, RetrainingTold
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Job, JobState, Tier
from tiercel.core.retraining import Retrain, Retraining, RetrainingState

TERMS = Retrain(2.0)


def endpoint_of(actors: Actors) -> Endpoint:
    return actors.registry.endpoints["digits"].endpoint


def words_of(actors: Actors) -> str:
    return actors.service.retrainings.words.get("digits", "")


async def say(actors: Actors, right: int, rows: int = 400, version: int = 1) -> None:
    """Applications say how often a version was right, and the broker looks."""
    usage = EndpointUsage("digits", 1.0, feedback=(VersionFeedback(version, rows, right),))
    actors.agents.measure_endpoints("n1", (usage,))
    await actors.service.retrainings.look()
    await actors.settle()


async def delivering(actors: Actors, **spec: Any) -> Job:
    """A job that has delivered version 1 with an accuracy of 0.9, as promised, and is over."""
    await actors.connect()
    job = await running(actors, **{"tiers": (Tier(0.9),), "retrain": TERMS, **spec})
    await actors.report(job.run_id, 0.93)
    await actors.delivered(f"{job.id}-tier-1")
    await actors.exit(job.run_id)
    return await actors.job(job.id)


async def decide(actors: Actors) -> Retraining:
    """A broker decides, and gets no further."""
    actor, heard = actors.registry.endpoints["digits"], {1: VersionFeedback(1, 400, 200)}
    await actor.call(PromisesJudged(heard, actors.clock.now()))
    known, _ = retraining.decided(actor.endpoint, heard, {}, actors.clock.now(), "j7")
    assert known is not None
    await actor.call(RetrainingNoted(None, known))
    return known


async def retrainings_stored(store: Store) -> list[str]:
    return [job.id for job in await store.list_jobs() if job.retrains is not None]


async def test_what_falls_below_its_promise_is_trained_again_and_replaced_by_what_is_better_now(actors: Actors) -> None:
    first = await delivering(actors)
    await say(actors, 370)
    assert words_of(actors) == "version 1 is right as often as 0.9, as far as can be told"
    await say(actors, 200)  # 0.451 to 0.549
    (known,) = endpoint_of(actors).retrainings
    job = await actors.job(known.job_id)
    assert (job.tenant, job.spec.endpoint, job.spec.tiers) == ("alice", "digits", (Tier(0.5488), Tier(0.9)))
    assert job.spec.labels == {"tiercel/repeats": first.id, "tiercel/retrains": "1"}
    assert (known.state, known.granted_seconds) == (RetrainingState.UNDERWAY, 7200.0)
    await say(actors, 100)
    assert len(endpoint_of(actors).retrainings) == 1, "one at a time"

    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.7)
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.LOADING, value=0.7, sha256="cd")
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.DELIVERED, value=0.7, sha256="cd")
    await actors.service.retrainings.look()
    assert endpoint_of(actors).live_version == 1, "labels may be wrong: it is not trained yet"
    await actors.exit(job.run_id)
    await actors.service.retrainings.look()
    (live,) = endpoint_of(actors).live
    assert (live.version, live.value) == (2, 0.7), "worse than what was measured once, and better than what is"
    assert live.retrain == replace(TERMS, below=0.9), "it is still to reach what was asked for"
    (known,) = endpoint_of(actors).retrainings
    assert known.state is RetrainingState.REPLACED
    await say(actors, 280, version=2)
    assert f"version 2 is less often right than 0.9: the last retraining ({job.id}) did not help" in words_of(actors)
    await say(actors, 370, version=2)
    assert words_of(actors) == "version 2 is right as often as 0.9, as far as can be told"
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.HELPED]
    told = [event for event in actors.events if isinstance(event, RetrainingTold)]
    assert [bool(each.job_id) for each in told] == [False, True, False, False, False]
    assert message_of(told[1]).topic == "tiercel/v1/alice/endpoints/digits/retraining"
    assert [event.kept for event in actors.events if isinstance(event, PromiseJudged)] == [False]
    assert [event.version.version for event in actors.events if isinstance(event, EndpointEvent)] == [1, 2]


async def test_a_broker_that_is_killed_after_it_decided_submits_once(store: Store) -> None:
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await delivering(actors)
        known = await decide(actors)
    async with running_actors(store, clock) as actors:
        await actors.connect()
        await actors.service.retrainings.look()
        job = await actors.job(known.job_id)
        assert job.state is JobState.STARTING
        # As a broker that was killed after the job was stored, and before it wrote that down.
        (begun,) = endpoint_of(actors).retrainings
        await actors.registry.endpoints["digits"].call(RetrainingNoted(begun, known))
    async with running_actors(store, clock) as actors:
        await actors.connect()
        await actors.service.retrainings.look()
        await actors.service.retrainings.look()
        assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.UNDERWAY]
    assert await retrainings_stored(store) == [known.job_id]


async def test_the_alarm_outlives_the_broker_and_no_promise_is_told_of_twice(store: Store) -> None:
    async with running_actors(store) as actors:
        await delivering(actors, retrain=None)
        await say(actors, 200)
        assert [event.kept for event in actors.events if isinstance(event, PromiseJudged)] == [False]
    async with running_actors(store) as actors:
        await actors.connect()
        await say(actors, 210)
        assert not [event for event in actors.events if isinstance(event, PromiseJudged)]
        await say(actors, 380)
        assert [event.kept for event in actors.events if isinstance(event, PromiseJudged)] == [True]


@pytest.mark.parametrize("meanwhile", ["deleted", "pinned", "as good again"])
async def test_what_is_not_wanted_any_more_is_not_submitted(actors: Actors, store: Store, meanwhile: str) -> None:
    first = await delivering(actors)
    known = await decide(actors)
    if meanwhile == "deleted":
        await actors.service.endpoints.delete("alice", "digits")
        await actors.service._submit_again(first, "alice", known, "")  # by a look that began before
    elif meanwhile == "pinned":
        await actors.registry.endpoints["digits"].call(VersionChosen(1, pin=True))
    else:
        await say(actors, 390)
    await actors.service.retrainings.look()
    assert await retrainings_stored(store) == []
    assert endpoint_of(actors).retrainings == ()


async def test_a_retraining_that_its_tenant_cancels_is_the_last_of_that_version(actors: Actors) -> None:
    await delivering(actors)
    await say(actors, 200)
    (known,) = endpoint_of(actors).retrainings
    await actors.service.cancel("alice", known.job_id)
    await actors.exit((await actors.job(known.job_id)).run_id, -15)
    await say(actors, 200)
    await actors.pass_time(60)
    await say(actors, 150)
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.CANCELLED]
    assert f"nothing is done, as job {known.job_id}, which trained it again, was cancelled" in words_of(actors)


async def test_a_tenant_without_room_is_told_and_trained_for_once_there_is(
    actors: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    await delivering(actors)
    monkeypatch.setitem(TENANTS, "alice", replace(ALICE, max_active_jobs=1))
    other = await submit(actors, "other")
    await say(actors, 200)
    assert "training it again waits: tenant alice has 1 unfinished jobs and may have 1" in words_of(actors)
    (known,) = endpoint_of(actors).retrainings
    assert known.state is RetrainingState.DECIDED
    await actors.service.cancel("alice", other.id)
    await actors.alive(other.run_id)
    await actors.exit((await actors.job(other.id)).run_id, -15)
    await actors.service.retrainings.look()
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.UNDERWAY]


async def test_one_that_replaces_nothing_is_followed_by_a_pause_and_changes_nothing_about_the_endpoint(
    actors: Actors,
) -> None:
    await delivering(actors, access=EndpointAccess.PUBLIC, endpoint_objective_seconds=0.5)
    await actors.registry.endpoints["digits"].call(AccessSet(EndpointAccess.KEY))
    await say(actors, 200)
    (known,) = endpoint_of(actors).retrainings
    job = await actors.job(known.job_id)
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.5)
    await actors.exit(job.run_id)
    await say(actors, 200)
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.FAILED]
    assert f"the last retraining ({job.id}) did not help" in words_of(actors)
    assert endpoint_of(actors).access is EndpointAccess.KEY
    actors.clock.set_forward(8 * 3600)
    await say(actors, 200)
    states = [each.state for each in endpoint_of(actors).retrainings]
    assert states == [RetrainingState.FAILED, RetrainingState.UNDERWAY]


async def test_one_that_its_tenant_resumes_counts_again_until_what_it_may_use_is_spent(actors: Actors) -> None:
    await delivering(actors)
    await say(actors, 200)
    (known,) = endpoint_of(actors).retrainings
    job = await actors.job(known.job_id)
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.5)
    await actors.exit(job.run_id, cpu_seconds=1200.0)
    await say(actors, 200)
    (over,) = endpoint_of(actors).retrainings
    assert (over.state, over.cost_seconds) == (RetrainingState.FAILED, 1200.0)

    actors.clock.set_forward(600)
    await actors.service.resume(ALICE, job.id)
    await say(actors, 200)
    job = await actors.job(job.id)
    (again,) = endpoint_of(actors).retrainings
    assert (again.state, again.cost_seconds) == (RetrainingState.UNDERWAY, 7200.0)
    assert again.decided_at > known.decided_at
    await actors.alive(job.run_id)
    await actors.exit(job.run_id, cpu_seconds=6000.0)
    await say(actors, 200)
    (over,) = endpoint_of(actors).retrainings
    assert (over.state, over.cost_seconds) == (RetrainingState.FAILED, 7200.0), "both of its runs"
    with pytest.raises(InvalidSpecError, match="the 2 core-hours that this retraining may use are spent"):
        await actors.service.resume(ALICE, job.id)


async def test_whoever_asked_is_told_while_no_application_says_what_was_right(actors: Actors) -> None:
    await delivering(actors)
    await actors.service.retrainings.look()
    assert words_of(actors) == "applications have not said of 30 rows yet what was right (feedback)"
    await actors.service.check(ALICE, make_spec(retrain=TERMS))
