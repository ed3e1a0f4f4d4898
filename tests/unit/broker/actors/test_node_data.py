"""Jobs that ask for data sets go where these are."""

from __future__ import annotations

import pytest

from testing.actors import ALICE, Actors, make_node, submit
from testing.jobs import make_spec
from tiercel.broker.actors.node_messages import NodeReported
from tiercel.core.data_sets import DataSet, NodeData
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import JobState, Resources

IMAGENET = (NodeData("imagenet", 150 << 30),)
ASKS = (DataSet("imagenet"),)


async def refusal(actors: Actors, *names: str, **spec: object) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as caught:
        await actors.service.submit(ALICE, make_spec(data=tuple(map(DataSet, names)), **spec), "")
    return caught.value


async def test_a_job_runs_where_its_data_is(actors: Actors) -> None:
    for number in range(4):
        await actors.connect(make_node(f"n{number}", data=IMAGENET if number == 2 else ()))
    jobs = [await submit(actors, f"e{number}", data=ASKS) for number in range(3)]
    assert [job.node_id for job in jobs] == ["n2"] * 3
    assert (await submit(actors, "other")).node_id == "n0", "whoever asks for none goes to the emptiest"


async def test_what_no_node_has_is_refused_with_what_there_is(actors: Actors) -> None:
    await actors.connect(make_node("n1", data=IMAGENET))
    await actors.connect(make_node("n2", data=(NodeData("digits"),)))
    error = await refusal(actors, "cifar")
    assert error.field == "data"
    assert "'cifar'; there are digits, imagenet" in error.message
    assert "no node has all of digits, imagenet" in (await refusal(actors, "digits", "imagenet")).message
    big = await refusal(actors, "digits", resources=Resources(cpu_cores=5))
    assert big.field == "resources.cpu_cores"


async def test_data_that_is_on_a_node_which_cannot_run_the_job(actors: Actors) -> None:
    await actors.connect(make_node("n1", runtimes=("docker",), data=IMAGENET))
    await actors.connect(make_node("n2"))
    assert (await refusal(actors, "imagenet", runtime="process")).field == "data"


async def test_a_job_waits_for_a_node_that_is_offline(actors: Actors) -> None:
    data_node = make_node("n1", data=IMAGENET)
    await actors.connect(data_node)
    other, epoch = await actors.connect(make_node("n2"))
    for _ in range(3):
        await actors.heartbeat(other, epoch)
        await actors.pass_time(4)
    assert [node.online for node in actors.service.nodes()] == [False, True]
    assert (await refusal(actors, "imagenet", resources=Resources(cpu_cores=5))).field == "resources.cpu_cores"
    job = await submit(actors, data=ASKS)
    assert job.state is JobState.PENDING
    assert job.reason == "waits for a node with the data set imagenet: none that is online has it"
    await actors.connect(data_node)
    assert (await actors.job(job.id)).node_id == "n1"


async def test_what_a_url_names_can_be_anywhere(actors: Actors) -> None:
    await actors.connect(make_node("n1"))
    assert (await submit(actors, data=(DataSet("imagenet", "https://host/x.npz"),))).node_id == "n1"


async def test_without_any_node_a_job_waits(actors: Actors) -> None:
    assert (await submit(actors, data=ASKS)).state is JobState.PENDING


async def test_a_heartbeat_says_what_is_there_now(actors: Actors) -> None:
    node, epoch = await actors.connect(make_node("n1", data=IMAGENET))
    job = await submit(actors, data=ASKS)
    await node.send(NodeReported(epoch, data=()))
    await actors.exit(job.run_id, None, lost=True)
    waiting = await actors.job(job.id)
    assert (waiting.state, waiting.run_active) == (JobState.PENDING, False)
    assert "imagenet" in waiting.reason
    await actors.pass_time(1)
    await node.send(NodeReported(epoch, data=IMAGENET))
    assert (await actors.job(job.id)).run_id == f"{job.id}-2"
