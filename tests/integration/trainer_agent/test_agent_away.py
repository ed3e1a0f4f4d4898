"""An agent whose broker is away, that dies, and that comes back: what becomes of its runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from testing.agent_life import (
    DEAF,
    SELDOM,
    SLEEPER,
    TRAIN,
    by_sequence,
    exit_of,
    greeted,
    is_gone,
    reports_since,
    running_pid,
    script_pid,
    serving_of,
)
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2


async def test_training_goes_on_while_the_broker_is_away_and_everything_is_told_when_it_is_back(
    broker: ScriptedBroker, agent: AgentProcess, linear: str
) -> None:
    runs = (
        wanted_run("job-1", linear, arguments=SELDOM),
        wanted_run(
            "short-1",
            "import os, time\nprint('one', flush=True)\n"
            "while not os.path.exists('broker-is-away'): time.sleep(0.01)\n"
            "print('two')\nraise SystemExit(4)",
        ),
    )
    await broker.want(*runs)
    await until(lambda: broker.heard.progress("job-1") and broker.heard.output("short-1"), seconds=DEADLINE)
    await broker.stop()
    before = len(broker.heard.progress("job-1"))
    (agent.state_dir / "agent" / "jobs" / "short" / "work" / "broker-is-away").touch()
    records = agent.state_dir / "agent" / "runs" / "short-1.json"
    await until(lambda: json.loads(records.read_text())["ended"], seconds=DEADLINE)
    await broker.start()  # on another port
    (agent.state_dir / "addresses.json").write_text(json.dumps({"nodes": broker.address}))
    await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
    told = {run.run_id: run for run in broker.heard.hellos[1].runs}
    assert told["job-1"].state == nodes_pb2.RUN_STATE_RUNNING
    assert (await exit_of(broker, "short-1")).exit_code == 4
    await until(lambda: broker.heard.output("short-1") == b"one\ntwo\n", seconds=DEADLINE)
    await until(lambda: len(broker.heard.progress("job-1")) > before)
    sequences = {report.sequence for report in broker.heard.progress("job-1")}
    assert sequences == set(range(1, max(sequences) + 1))


async def test_an_agent_with_a_fence_ends_its_runs_in_time_and_goes_on_serving(
    broker: ScriptedBroker, agent: AgentProcess, linear: str
) -> None:
    broker.fence = nodes_pb2.Fence(stop_after_seconds=600.0, end_after_seconds=700.0)
    await broker.want(wanted_run("job-1", linear, arguments=TRAIN), wanted_run("deaf-1", DEAF))
    deaf = await running_pid(broker, "deaf-1")
    await until(lambda: broker.heard.progress("job-1") and broker.heard.serving(), seconds=DEADLINE)
    await until(lambda: any(m.heartbeat.fenced for m in broker.heard.messages), seconds=DEADLINE)
    serving = psutil.Process(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"])
    broker.fence = nodes_pb2.Fence(stop_after_seconds=1.0, end_after_seconds=11.0)
    fence = agent.state_dir / "agent" / "fence.json"
    await until(lambda: json.loads(fence.read_text())["stop_after_seconds"] == 1.0, seconds=DEADLINE)
    await broker.stop()  # as far as the agent can tell, it may be the network, and the broker alive
    await until(lambda: not psutil.pid_exists(deaf), seconds=DEADLINE)
    records = agent.state_dir / "agent" / "runs"
    await until(lambda: all(json.loads(path.read_text())["ended"] for path in records.glob("*.json")), seconds=DEADLINE)
    assert list((agent.state_dir / "agent" / "jobs" / "job" / "checkpoints").iterdir()), "first it saved a checkpoint"
    assert serving.is_running()
    await broker.start()
    (agent.state_dir / "addresses.json").write_text(json.dumps({"nodes": broker.address}))
    for run_id in ("job-1", "deaf-1"):
        status = await exit_of(broker, run_id)
        assert status.lost
        assert "without its broker for so long that the job may go on elsewhere" in status.reason
    await broker.want(wanted_run("job-2", "print('next attempt')"))
    assert (await exit_of(broker, "job-2")).exit_code == 0


async def test_the_runs_of_an_agent_that_died_end_in_time_also_if_it_does_not_come_back(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    broker.fence = nodes_pb2.Fence(stop_after_seconds=600.0, end_after_seconds=700.0)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(wanted_run("job-1", DEAF))
        pid = await running_pid(broker, "job-1")
        fence = agent.state_dir / "agent" / "fence.json"
        await until(fence.exists, seconds=DEADLINE)
        (keeper,) = await keepers_of(agent)
        keeper.kill()  # as whoever finds it in a list might
        await until(lambda: not keeper.is_running(), seconds=DEADLINE)
        (keeper,) = await keepers_of(agent)
        await agent.kill()
        known = json.loads(fence.read_text())
        fence.write_text(json.dumps(known | {"contact_at": known["contact_at"] - 698.0}))
        await until(lambda: not psutil.pid_exists(pid), seconds=DEADLINE)
        await until(lambda: not keeper.is_running(), seconds=DEADLINE)
        agent.start()
        assert (await exit_of(broker, "job-1")).exit_code == -9
        (keeper,) = await keepers_of(agent)
        await agent.leave()
        assert not keeper.is_running()


DEFECT = """
import sys
from pathlib import Path
from tiercel.trainer_agent import main
from tiercel.trainer_agent.fence import fence
is_kept = fence.Fence.is_kept.fget
def fails(self):
    if Path({crash!r}).exists(): raise ValueError("a defect")
    return is_kept(self)
fence.Fence.is_kept = property(fails)
sys.exit(main.main(sys.argv[1:]))
"""


async def test_runs_end_in_time_also_where_a_defect_ended_their_agent(broker: ScriptedBroker, tmp_path: Path) -> None:
    broker.fence = nodes_pb2.Fence(stop_after_seconds=600.0, end_after_seconds=700.0)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await agent.kill()
        flags = agent.command[agent.command.index("tiercel.trainer_agent") + 1 :]
        (tmp_path / "defect.py").write_text(DEFECT.format(crash=str(tmp_path / "crash")))
        agent.command = [str(tmp_path / "defect.py"), *flags]
        agent.start()
        await broker.want(wanted_run("job-1", DEAF))
        pid = await running_pid(broker, "job-1")
        fence = agent.state_dir / "agent" / "fence.json"
        await until(fence.exists, seconds=DEADLINE)
        await keepers_of(agent)
        (tmp_path / "crash").touch()
        assert await agent.wait() == 1
        assert psutil.pid_exists(pid)
        known = json.loads(fence.read_text())
        fence.write_text(json.dumps(known | {"contact_at": known["contact_at"] - 698.0}))
        await until(lambda: not psutil.pid_exists(pid), seconds=DEADLINE)


async def keepers_of(agent: AgentProcess) -> list[psutil.Process]:
    """Processes that wait for the death of an agent."""
    found: list[psutil.Process] = []

    def look() -> bool:
        children = psutil.Process(agent.process.pid).children()
        found[:] = [child for child in children if "tiercel.trainer_agent.fence.keeper" in child.cmdline()]
        return bool(found)

    await until(look, seconds=DEADLINE)
    return found


async def test_an_agent_that_comes_back_behind_its_fence_ends_what_it_takes_over(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    """The broker answers at once, but may have started the job elsewhere while there was no agent."""
    broker.fence = nodes_pb2.Fence(stop_after_seconds=600.0, end_after_seconds=700.0)
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(wanted_run("job-1", SLEEPER))
        pid = await running_pid(broker, "job-1")
        fence = agent.state_dir / "agent" / "fence.json"
        await until(fence.exists, seconds=DEADLINE)
        await agent.kill()
        assert psutil.pid_exists(pid)
        known = json.loads(fence.read_text())
        fence.write_text(json.dumps(known | {"contact_at": known["contact_at"] - 650.0}))
        agent.start()
        status = await exit_of(broker, "job-1")
        assert status.lost
        assert "without its broker for so long that the job may go on elsewhere" in status.reason
        assert not psutil.pid_exists(pid)


async def test_runs_survive_deaths_of_their_agent_in_a_row(broker: ScriptedBroker, tmp_path: Path, linear: str) -> None:
    """A real training goes on in the same process, and so does what it says: nothing lost, nothing twice."""
    counting = (
        "import os, time\nprint('pid', os.getpid(), flush=True)\nnumber = 0\n"
        "while not os.path.exists('agent-is-away'):\n    number += 1; print(number, flush=True); time.sleep(0.01)\n"
        "raise SystemExit(4)"
    )
    runs = (wanted_run("job-1", linear, arguments=SELDOM), wanted_run("short-1", counting))
    state = tmp_path / "state"
    with agent_process(state, broker.address) as agent:
        await broker.want(*runs)
        await until(lambda: broker.heard.progress("job-1") and broker.heard.output("short-1"), seconds=DEADLINE)
        serving, address = await serving_of(broker, agent)
        pids = {run_id: script_pid(agent, run_id) for run_id in ("job-1", "short-1")}
        for life in range(2, 5):
            await agent.kill()
            agent.start()
            await greeted(broker, life)
        seen = len(broker.heard.messages)
        await until(lambda: reports_since(broker, seen), seconds=DEADLINE)
        assert all(run.state == nodes_pb2.RUN_STATE_RUNNING for hello in broker.heard.hellos for run in hello.runs)
        assert psutil.pid_exists(pids["job-1"])
        assert psutil.pid_exists(pids["short-1"])
        assert (await serving_of(broker, agent)) == (serving, address)
        # One ends while there is no agent.
        await agent.kill()
        (state / "agent" / "jobs" / "short" / "work" / "agent-is-away").touch()
        await until(lambda: not psutil.pid_exists(pids["short-1"]))
        agent.start()
        status = await exit_of(broker, "short-1")
        assert (status.exit_code, status.lost) == (4, False)
        lines = broker.heard.output("short-1").decode().splitlines()
        assert lines == [f"pid {pids['short-1']}", *map(str, range(1, len(lines)))]
        await broker.want(wanted_run("job-1", linear, arguments=SELDOM, stop=True), runs[1])
        status = await exit_of(broker, "job-1")
        assert (status.exit_code, status.reason, status.lost) == (0, "the broker asked it to stop", False)
        sequences = {report.sequence for report in broker.heard.progress("job-1")}
        assert sequences == set(range(1, max(sequences) + 1))
        cpu_seconds = [report.cpu_seconds for report in sorted(broker.heard.progress("job-1"), key=by_sequence)]
        assert cpu_seconds == sorted(cpu_seconds)
        assert list((state / "agent" / "minders").iterdir()) == []
        await agent.leave()
    # Not our child: it lets go of its lock, which is what the agent waits for, a moment before it is gone.
    await until(lambda: is_gone(serving))


async def test_a_run_that_is_gone_when_its_agent_comes_back_is_lost(broker: ScriptedBroker, tmp_path: Path) -> None:
    script = f"import os\nif os.fork() == 0: os.setsid()\n{SLEEPER}"
    with agent_process(tmp_path / "state", broker.address) as agent:
        await broker.want(wanted_run("job-1", script))
        await until(lambda: broker.heard.output("job-1").count(b"\n") == 2, seconds=DEADLINE)
        pids = [int(line.split()[1]) for line in broker.heard.output("job-1").splitlines()]
        await agent.kill()
        # As after the machine was started again: what the minder wrote down is of another boot.
        processes = agent.state_dir / "agent" / "minders" / "job-1" / "processes"
        known = json.loads(processes.read_text())
        processes.write_text(json.dumps([["another-boot", *rest] for _, *rest in known]))
        agent.start()
        await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
        (status,) = broker.heard.hellos[1].runs
        assert status.state == nodes_pb2.RUN_STATE_EXITED
        assert (status.reason, status.lost) == ("it was gone when its agent came back", True)
        if broker.heard.hellos[0].limits == "cooperative":  # those of another boot are nobody of ours
            assert all(psutil.pid_exists(pid) for pid in pids)
        else:  # who is in a group of ours is ours
            await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        await broker.want(wanted_run("job-2", "print('next attempt')"))
        assert (await exit_of(broker, "job-2")).exit_code == 0
    for pid in filter(psutil.pid_exists, pids):
        os.kill(pid, 9)


async def test_leaving_stops_runs_through_no_fault_of_theirs(
    broker: ScriptedBroker, agent: AgentProcess, linear: str
) -> None:
    await broker.want(wanted_run("job-1", linear, arguments=TRAIN), wanted_run("other-1", SLEEPER))
    pid = await running_pid(broker, "other-1")
    await until(lambda: broker.heard.progress("job-1") and broker.heard.serving(), seconds=DEADLINE)
    serving = psutil.Process(json.loads((agent.state_dir / "agent" / "serving.json").read_text())["pid"])
    await agent.leave()
    for run_id in ("job-1", "other-1"):
        status = await exit_of(broker, run_id)
        assert (status.reason, status.lost) == ("the agent of its node was stopped", True)
    assert not psutil.pid_exists(pid)
    assert is_gone(serving)
