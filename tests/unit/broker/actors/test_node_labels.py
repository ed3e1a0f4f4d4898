"""Jobs that ask for labels of nodes."""

from __future__ import annotations

from testing.actors import Actors, make_node, submit
from tiercel.core.jobs import JobState

SSD = {"disk": "ssd", "room": "cellar"}


async def test_a_job_runs_where_its_labels_are(actors: Actors) -> None:
    await actors.connect(make_node("n1", cpu_cores=64.0))
    await actors.connect(make_node("n2", labels=SSD))
    job = await submit(actors, node_labels={"disk": "ssd"})
    assert (job.state, job.node_id) == (JobState.STARTING, "n2")


async def test_a_job_whose_labels_nobody_has_waits_and_says_so(actors: Actors) -> None:
    await actors.connect(make_node("n1", labels=SSD))
    job = await submit(actors, node_labels={"disk": "tape"})
    assert job.state is JobState.PENDING
    assert job.reason == "waits for a node labelled disk=tape: none that is online has it"
    both = await submit(actors, "b", node_labels={"disk": "ssd", "room": "attic"})
    assert both.reason == "waits for a node labelled disk=ssd, room=attic: none that is online has all of them"
    await actors.connect(make_node("n2", labels={"disk": "tape"}))
    await actors.pass_time(1)
    assert (await actors.job(job.id)).node_id == "n2"


async def test_an_agent_that_comes_back_with_other_labels_keeps_its_runs(actors: Actors) -> None:
    await actors.connect(make_node("n1", labels=SSD))
    job = await submit(actors, node_labels={"disk": "ssd"})
    await actors.alive(job.run_id)
    await actors.connect(make_node("n1"), runs=[job.run_id])
    await actors.alive(job.run_id)
    waits = await submit(actors, "b", node_labels={"disk": "ssd"})
    await actors.pass_time(1)
    assert (await actors.job(job.id)).state is JobState.RUNNING
    assert waits.state is JobState.PENDING
