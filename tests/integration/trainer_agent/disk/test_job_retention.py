"""Which jobs a real agent holds for over, so that their folders may go in time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from testing.agent_process import AgentProcess
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

SLEEPER = "import time; time.sleep(600)"


def noted(agent: AgentProcess) -> set[str]:
    """The jobs that are held for over."""
    notes: Path = agent.state_dir / "agent" / "ended-jobs"
    return {note.name for note in notes.iterdir()} if notes.exists() else set()


async def test_a_job_is_over_once_the_broker_lets_go_of_the_run_that_ended(
    broker: ScriptedBroker, agent: AgentProcess
) -> None:
    await broker.want(wanted_run("done-1", "print('done')"), wanted_run("dropped-1", SLEEPER))
    await until(lambda: broker.heard.exit("done-1") and broker.heard.is_running("dropped-1"), seconds=DEADLINE)
    assert noted(agent) == set()
    # What was still running may go on elsewhere: nobody said that its job is over.
    await broker.want()
    await until(lambda: broker.heard.exit("dropped-1"), seconds=DEADLINE)
    await until(lambda: noted(agent) == {"done"}, seconds=DEADLINE)
    # Until the broker has heard of its end the agent keeps what it knows of a run: then it would be noted.
    await broker.want(wanted_run("cancelled-1", SLEEPER))
    await until(lambda: broker.heard.is_running("cancelled-1"), seconds=DEADLINE)
    await broker.want(wanted_run("cancelled-1", SLEEPER, stop=True))
    await until(lambda: broker.heard.exit("cancelled-1"), seconds=DEADLINE)
    await broker.want()
    await until(lambda: noted(agent) == {"done", "cancelled"}, seconds=DEADLINE)
    # A new run of a job says that it goes on.
    await broker.want(wanted_run("done-2", SLEEPER))
    await until(lambda: noted(agent) == {"cancelled"}, seconds=DEADLINE)
    assert (agent.state_dir / "agent" / "jobs" / "cancelled").is_dir()


async def test_a_broker_that_never_asked_for_a_run_does_not_confirm_its_end(
    broker: ScriptedBroker, agent: AgentProcess
) -> None:
    await broker.want(wanted_run("away-1", "print('done')"))
    await until(lambda: broker.heard.exit("away-1"), seconds=DEADLINE)
    assert (agent.state_dir / "agent" / "runs" / "away-1.json").exists()
    address = int(broker.address.rpartition(":")[2])
    await broker.stop()
    await broker.want(wanted_run("other-1", SLEEPER))
    await broker.start(address)
    await until(lambda: broker.heard.is_running("other-1"), seconds=DEADLINE)
    record = agent.state_dir / "agent" / "runs" / "away-1.json"
    await until(lambda: not record.exists(), seconds=DEADLINE)
    assert noted(agent) == set()


async def test_a_run_of_a_job_whose_folder_is_gone_is_said_to_begin_again(
    broker: ScriptedBroker, agent: AgentProcess
) -> None:
    checkpoints = agent.state_dir / "agent" / "jobs" / "kept" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "last").touch()
    await broker.want(wanted_run("kept-2", SLEEPER), wanted_run("gone-2", SLEEPER))
    for run_id, from_beginning in (("kept-2", False), ("gone-2", True)):
        await until(partial(broker.heard.is_running, run_id), seconds=DEADLINE)
        said = [run.from_beginning for run in broker.heard.runs(run_id) if run.state == nodes_pb2.RUN_STATE_RUNNING]
        assert set(said) == {from_beginning}
