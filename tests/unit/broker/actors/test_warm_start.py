"""Jobs that begin with the weights of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.actors import ALICE, BOB, Actors, make_node, running, submit, wanted_of
from tiercel.broker.api.wanted import wanted_to_proto
from tiercel.broker.store.logs import RunLogs
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.jobs import JobState


async def over(actors: Actors, endpoint: str = "source") -> str:
    """A job that has ended on node n1."""
    job = await running(actors, endpoint)
    await actors.report(job.run_id, 0.5)
    await actors.exit(job.run_id)
    return job.id


async def test_it_is_placed_where_the_checkpoint_is_and_its_node_is_told(actors: Actors, tmp_path: Path) -> None:
    node, epoch = await actors.connect()
    source = await over(actors)
    await actors.connect(make_node("n2", cpu_cores=64.0))
    job = await submit(actors, warm_start=source)
    assert (job.state, job.node_id) == (JobState.STARTING, "n1")
    assert job.reason == f"starting on node n1 with the weights of job {source}"
    (run,) = wanted_to_proto(await wanted_of(node, epoch), RunLogs(tmp_path)).runs
    assert run.warm_start_job_id == source
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.1)
    job = await actors.job(job.id)
    assert (job.best_value, job.tiers[0].reached_value) == (0.1, None), "metric and tiers begin anew"
    assert not job.starts_warm, "from now on it has a checkpoint of its own"


async def test_it_waits_for_the_node_that_has_the_checkpoint_and_says_so(actors: Actors) -> None:
    await actors.connect()
    source = await over(actors)
    await actors.connect(make_node("n2"))
    await actors.pass_time(11)  # n1 is silent, and offline by then
    await actors.connect(make_node("n2"))
    job = await submit(actors, warm_start=source)
    assert (job.state, job.reason) == (JobState.PENDING, "waits for node n1, where what it starts from is")
    await actors.connect()
    await actors.pass_time(1)
    assert (await actors.job(job.id)).node_id == "n1"


async def test_a_first_run_that_is_lost_begins_with_the_weights_again(actors: Actors) -> None:
    await actors.connect()
    source = await over(actors)
    await actors.connect(make_node("n2", cpu_cores=64.0))
    job = await submit(actors, warm_start=source)
    await actors.alive(job.run_id)
    await actors.exit(job.run_id, None, lost=True)
    await actors.pass_time(1)
    job = await actors.job(job.id)
    assert (job.state, job.node_id, job.attempts, job.starts_warm) == (JobState.STARTING, "n1", 2, True)


async def test_what_cannot_be_started_from_is_refused(actors: Actors) -> None:
    await actors.connect()
    source = await over(actors)
    with pytest.raises(NotFoundError, match="warm_start: there is no job 'nosuchjob'") as refused:
        await submit(actors, warm_start="nosuchjob")
    assert refused.value.field == "warm_start"
    with pytest.raises(NotFoundError, match="warm_start: there is no job"):
        await submit(actors, "theirs", BOB, warm_start=source)
    present = await running(actors)
    with pytest.raises(InvalidSpecError, match="is running, and its weights still change"):
        await submit(actors, "other", warm_start=present.id)


async def test_a_job_that_never_ran_has_nothing_to_start_from(actors: Actors) -> None:
    never = await submit(actors)  # there is no node
    await actors.service.cancel("alice", never.id)
    with pytest.raises(InvalidSpecError, match="has no checkpoint, as it has never run") as refused:
        await submit(actors, warm_start=never.id)
    assert refused.value.field == "warm_start"


async def test_a_variant_is_not_torn_between_two_nodes(actors: Actors) -> None:
    await actors.connect()
    source = await over(actors)
    await actors.connect(make_node("n2", cpu_cores=64.0))
    other = await running(actors, "digits", variant="small")
    assert other.node_id == "n2"
    with pytest.raises(InvalidSpecError, match="is on node n1, and the variants of endpoint 'digits' are on node n2"):
        await submit(actors, "digits", variant="large", warm_start=source)


async def test_a_job_that_is_resumed_before_it_reported_begins_with_the_weights_again(actors: Actors) -> None:
    await actors.connect()
    source = await over(actors)
    job = await submit(actors, warm_start=source)
    await actors.alive(job.run_id)
    await actors.exit(job.run_id, 1)
    await actors.service.resume(ALICE, job.id)
    job = await actors.job(job.id)
    assert job.reason == f"starting on node n1 with the weights of job {source}"
