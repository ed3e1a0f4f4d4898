"""What an illegal transition tells of the inputs that led there."""

from __future__ import annotations

import pytest

from testing.actors import Actors, running
from testing.jobs import SHARE
from tiercel.broker.actors.input_history import INPUTS_KEPT, MAX_CHARACTERS, InputHistory
from tiercel.broker.lifecycle.job_events import Assigned, Deferred, NodeSilent, RunIsAlive
from tiercel.core.errors import IllegalTransitionError
from tiercel.core.jobs import JobState


async def test_an_illegal_transition_tells_what_led_there(actors: Actors, caplog: pytest.LogCaptureFixture) -> None:
    await actors.connect()
    job = await running(actors)
    actor = actors.registry.jobs[job.id]
    for sequence in range(1, 2 * INPUTS_KEPT):
        await actors.report(job.run_id, 0.5, sequence)
    await actor.call(NodeSilent("n1"))
    with pytest.raises(IllegalTransitionError) as caught:
        await actor.call(Assigned("n2", SHARE, 2))
    assert [line.partition(" ")[2] for line in caught.value.history] == [
        "pending -> starting: Assigned(node_id=n1, attempt=1)",
        "starting -> starting: NodeFenced(node_id=n1, fenced=True)",
        f"starting -> running: RunIsAlive(run_id={job.run_id}, from_beginning=False, warm=False)",
        "running -> disconnected: NodeSilent(node_id=n1)",
    ], "reports that lead nowhere push out nothing"
    assert all(line.startswith("1970-01-12T13:46:40.000+00:00 ") for line in caught.value.history)
    assert caught.value.history[0] in caplog.text, "it is in the log"
    assert "\n" not in caught.value.message, "whoever is only told the message is spared the rest"
    await actor.call(RunIsAlive(job.run_id))
    assert actor.job.state is JobState.RUNNING, "it goes on"


def test_no_more_is_kept_than_fits() -> None:
    history = InputHistory()
    for number in range(3 * INPUTS_KEPT):
        history.add(float(number), Deferred("x" * 100_000), JobState.PENDING, JobState.PENDING)
        history.add(float(number), "y" * 100_000, JobState.PENDING, JobState.PENDING)
    assert len(history.lines()) == INPUTS_KEPT
    assert max(map(len, history.lines())) < 2 * MAX_CHARACTERS
    assert history.lines()[-1].startswith("1970-01-01T00:00:59.000")
