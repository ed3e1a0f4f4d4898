"""Names of endpoints come free again: when nothing was delivered, and when somebody says so."""

from __future__ import annotations

import pytest

from testing.actors import ALICE, BOB, Actors, running, running_actors, submit, wanted_of
from tiercel.broker.lifecycle.versions import WantedModel
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import EndpointUsage
from tiercel.core.errors import EndpointBusyError, NotFoundError
from tiercel.core.events import EndpointGone
from tiercel.core.feedback import VersionFeedback


async def deliver_first_tier(actors: Actors) -> str:
    """A job of alice that has delivered version 1 and goes on; returns its id."""
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.delivered(f"{job.id}-tier-1")
    return job.id


async def end(actors: Actors, job_id: str) -> None:
    await actors.service.cancel("alice", job_id)
    await actors.exit((await actors.job(job_id)).run_id, 0)


def names(actors: Actors, tenant: str = "alice") -> list[str]:
    return [endpoint.name for endpoint in actors.service.endpoints.of(tenant)]


async def test_an_endpoint_without_versions_goes_with_its_last_job(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    assert names(actors) == ["digits"]
    await actors.exit(job.run_id, 1)
    assert names(actors) == []
    with pytest.raises(NotFoundError):
        actors.service.endpoints.find("alice", "digits")
    theirs = await submit(actors, tenant=BOB)
    assert (names(actors), names(actors, "bob")) == ([], ["digits"])
    with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
        await submit(actors)
    assert theirs.spec.endpoint == "digits"


async def test_a_deleted_endpoint_is_free_and_its_numbers_go_on(actors: Actors, store: Store) -> None:
    node, epoch = await actors.connect()
    job_id = await deliver_first_tier(actors)
    with pytest.raises(NotFoundError):
        await actors.service.endpoints.delete("bob", "digits")
    with pytest.raises(EndpointBusyError, match=f"is being fed by job {job_id}; wait for it or cancel it"):
        await actors.service.endpoints.delete("alice", "digits")
    await end(actors, job_id)
    assert names(actors) == ["digits"], "what answers stays"
    usage = EndpointUsage("digits", 5.0, 10, 10, 0.1, 0.1, feedback=(VersionFeedback(1, 10, 9),))
    actors.agents.measure_endpoints("n1", (usage,))
    assert list(actors.service.endpoints.feedback("digits")) == [1]
    await actors.service.endpoints.delete("alice", "digits")
    assert actors.service.endpoints.feedback("digits") == {}, "the name may be somebody else's next"
    assert names(actors) == []
    assert EndpointGone("digits", "alice", actors.clock.now()) in actors.events
    with pytest.raises(NotFoundError):
        await actors.service.endpoints.delete("alice", "digits")
    await actors.settle()
    assert (await wanted_of(node, epoch)).models == (WantedModel("digits", "", 0, ()),)
    (kept,) = await store.load_endpoints()
    assert (kept.versions, kept.left) == ((), (("n1", ""),)), "the node is to remove what it has of it"
    async with running_actors(store) as again:  # and it stays so
        assert names(again) == []
        node, epoch = await again.connect()
        assert (await wanted_of(node, epoch)).models == (WantedModel("digits", "", 0, ()),), "it may have been away"
        theirs = await submit(again, tenant=BOB)
        await again.alive(theirs.run_id)
        await again.report(theirs.run_id, 0.85)
        await again.delivered(f"{theirs.id}-tier-1")
        (endpoint,) = again.service.endpoints.of("bob")
        assert [version.version for version in endpoint.versions] == [2], "no node has another model of that number"
        assert endpoint.tenant == "bob"
        assert (await wanted_of(node, epoch)).models == (WantedModel("digits", "", 2, (2,)),)


async def test_a_version_on_its_way_keeps_the_endpoint(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.exit(job.run_id, 0)  # over, but its model is being delivered
    assert names(actors) == ["digits"]
    with pytest.raises(EndpointBusyError):
        await actors.service.endpoints.delete(ALICE.name, "digits")
    await actors.delivered(f"{job.id}-tier-1")
    assert names(actors) == ["digits"]
    await actors.service.endpoints.delete(ALICE.name, "digits")
    assert names(actors) == []
