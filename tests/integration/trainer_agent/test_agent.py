"""An agent as a process of its own, a scripted broker over real gRPC, real training processes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import aiohttp
import psutil
import pytest

from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, NODE_TOKEN, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.core.kept_output import HEAD_BYTES, TAIL_BYTES
from tiercel.trainer_agent.reports.metric_names import BAD_NAME
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import BYTES_AT_ONCE, BYTES_PER_SECOND
from tiercel.v1 import nodes_pb2

SLEEPER = "import os, time\nos.write(1, b'pid %d\\n' % os.getpid())\ntime.sleep(600)"
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"
SHORT = ("--metric", "score", "--epochs")
TRAIN = ("--metric", "score", "--epochs", "100000", "--step-sleep-seconds", "0.01")
SELDOM = (*TRAIN, "--step-sleep-seconds", "0.1")  # so that no report gives way to a better and a later one

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent."""


async def exit_of(broker: ScriptedBroker, run_id: str) -> nodes_pb2.RunStatus:
    """How a run ended, once it has."""
    await until(lambda: broker.heard.exit(run_id), seconds=DEADLINE)
    status = broker.heard.exit(run_id)
    assert status is not None
    return status


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended; whoever inherited it may not have noticed yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def by_sequence(report: nodes_pb2.Progress) -> int:
    """Their order."""
    return report.sequence


def reports_since(broker: ScriptedBroker, seen: int) -> bool:
    """Whether a script has reported since so many messages were heard."""
    return any(message.HasField("progress") for message in broker.heard.messages[seen:])


async def greeted(broker: ScriptedBroker, times: int) -> None:
    """Wait until agents have said hello so many times."""
    await until(lambda: len(broker.heard.hellos) == times, seconds=DEADLINE)


async def serving_of(
    broker: ScriptedBroker, agent: AgentProcess
) -> tuple[psutil.Process, nodes_pb2.ServingStatus | None]:
    """The inference server, and where the broker was told that it is."""
    await until(broker.heard.serving, seconds=DEADLINE)
    state = json.loads((agent.state_dir / "agent" / "serving.json").read_text())
    return psutil.Process(state["pid"]), broker.heard.serving()


async def scraped(agent: AgentProcess) -> set[str]:
    """The lines that Prometheus would be told."""
    (url,) = re.findall(r"metrics are at (\S+)", agent.log.read_text())
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return set((await answer.text()).splitlines())


def script_pid(agent: AgentProcess, run_id: str) -> int:
    """The process of a run."""
    _, (_, pid, _) = json.loads((agent.state_dir / "agent" / "minders" / run_id / "processes").read_text())
    return int(pid)


async def running_pid(broker: ScriptedBroker, run_id: str) -> int:
    """The process of a run that prints it."""
    await until(lambda: broker.heard.output(run_id).endswith(b"\n"), seconds=DEADLINE)
    return int(broker.heard.output(run_id).split()[1])


async def test_it_says_what_the_node_is_and_logs_as_json_if_told_to(broker: ScriptedBroker, tmp_path: Path) -> None:
    with agent_process(tmp_path, broker.address, "--log-format", "json") as agent:
        await check_what_it_says(broker, agent)
    for log in (agent.log, agent.state_dir / "agent" / "serving.log"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert lines
        assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert {json.loads(line)["node"] for line in agent.log.read_text().splitlines()} == {"testing"}


async def check_what_it_says(broker: ScriptedBroker, agent: AgentProcess) -> None:
    await until(lambda: broker.heard.hellos, seconds=DEADLINE)
    hello = broker.heard.hellos[0]
    assert hello.node_id == "testing"
    assert 0 < hello.cpu_cores <= os.cpu_count()  # type: ignore[operator]  # there is at least one
    assert hello.memory_bytes > 0
    assert list(hello.runtimes) == ["process"]
    assert hello.limits in {"cgroup-v2", "cgroup-v1", "cooperative"}
    assert broker.tokens == [f"Bearer {NODE_TOKEN}"]
    await until(broker.heard.serving, seconds=DEADLINE)
    await until(lambda: any(m.HasField("heartbeat") for m in broker.heard.messages), seconds=DEADLINE)
    await agent.leave()


async def test_a_run_from_its_start_to_its_end(broker: ScriptedBroker, agent: AgentProcess, linear: str) -> None:
    await broker.want(wanted_run("job-1", linear, arguments=(*SHORT, "5"), target=2.0))
    status = await exit_of(broker, "job-1")
    assert status.exit_code == 0, status.log_tail
    assert status.cpu_seconds > 0.1
    assert status.log_tail.splitlines()[-1].startswith("weights")
    assert not status.lost
    assert broker.heard.output("job-1").decode().strip() == status.log_tail
    running = nodes_pb2.RUN_STATE_RUNNING  # said when it begins, and once more when it trains
    states = [run.state for run in broker.heard.runs("job-1")]
    assert states == [nodes_pb2.RUN_STATE_STARTING, running, running, nodes_pb2.RUN_STATE_EXITED]
    assert [run.HasField("begun_cpu_seconds") for run in broker.heard.runs("job-1")] == [False, False, True, False]
    progress = broker.heard.progress("job-1")
    assert [report.sequence for report in progress] == [1, 2, 3, 4, 5]
    assert all("score" in report.metrics and report.HasField("at") for report in progress)
    cpu_seconds = [report.cpu_seconds for report in progress]
    assert cpu_seconds == sorted(cpu_seconds)
    assert cpu_seconds[0] > 0
    # It is reported again for as long as it is wanted, and never started again.
    await broker.want(wanted_run("job-1", linear))
    await until(lambda: len(broker.heard.runs("job-1")) == 5)
    assert broker.heard.runs("job-1")[-1] == status
    await broker.want()
    await until(lambda: not list((agent.state_dir / "agent" / "runs").iterdir()))
    told = await scraped(agent)
    assert 'tiercel_agent_runs_ended_total{outcome="completed"} 1.0' in told
    assert {'tiercel_agent_runs{state="running"} 0.0', "tiercel_agent_runs_unconfirmed 0.0"} <= told
    assert {"tiercel_agent_connected 1.0", "tiercel_agent_connections_total 1.0"} <= told
    assert {"tiercel_agent_reports_total 5.0", "tiercel_agent_reports_left_out_total 0.0"} <= told
    assert any(line.startswith("tiercel_agent_disk_free_bytes ") for line in told)


@SHARED
async def test_what_is_not_wanted_any_more_is_stopped(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess
) -> None:
    broker = shared_broker
    await broker.want(wanted_run("dropped-1", SLEEPER), wanted_run("kept-1", SLEEPER))
    pid = await running_pid(broker, "dropped-1")
    await broker.want(wanted_run("kept-1", SLEEPER))
    status = await exit_of(broker, "dropped-1")
    assert status.exit_code == -15
    assert status.reason == "the broker no longer wants it"
    assert not psutil.pid_exists(pid)
    assert broker.heard.exit("kept-1") is None


async def test_what_waits_for_its_script_is_stopped_at_once(broker: ScriptedBroker, agent: AgentProcess) -> None:
    """The agent would ask for two minutes."""
    broker.holds_scripts = True
    await broker.want(wanted_run("job-1", SLEEPER), wanted_run("job-2", SLEEPER))
    await until(lambda: broker.held_scripts, seconds=DEADLINE)
    await broker.want(wanted_run("job-1", SLEEPER, stop=True))
    await until(lambda: broker.heard.exit("job-1"), seconds=90)
    await broker.want(wanted_run("other-1", SLEEPER))
    await until(lambda: broker.held_scripts > 1, seconds=DEADLINE)
    agent.process.terminate()
    await until(lambda: agent.process.poll() is not None, seconds=90)


@SHARED
async def test_a_trainer_is_asked_first(shared_broker: ScriptedBroker, shared_agent: AgentProcess, linear: str) -> None:
    broker, agent = shared_broker, shared_agent
    await broker.want(wanted_run("asked-1", linear, arguments=TRAIN))
    await until(lambda: broker.heard.progress("asked-1"), seconds=DEADLINE)
    await broker.want(wanted_run("asked-1", linear, arguments=TRAIN, stop=True))
    status = await exit_of(broker, "asked-1")
    assert (status.exit_code, status.reason) == (0, "the broker asked it to stop")
    assert list((agent.state_dir / "agent" / "jobs" / "asked" / "checkpoints").iterdir())


@SHARED
async def test_what_cannot_be_started_says_why(shared_broker: ScriptedBroker, shared_agent: AgentProcess) -> None:
    broker = shared_broker
    await broker.want(
        wanted_run("none-1"),
        wanted_run("docker-1", "pass", runtime="docker"),
        wanted_run("gone-1", "pass", stop=True),
    )
    assert "give the job a script or a command" in (await exit_of(broker, "none-1")).reason
    assert "does not offer the runtime 'docker', only process" in (await exit_of(broker, "docker-1")).reason
    gone = await exit_of(broker, "gone-1")
    assert (gone.reason, gone.lost) == ("the node does not know this run", True)
    for run_id in ("none-1", "docker-1", "gone-1"):
        status = broker.heard.exit(run_id)
        assert status is not None
        assert not status.HasField("exit_code")


@SHARED
async def test_names_cannot_lead_out_of_the_state_directory(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess
) -> None:
    broker, agent = shared_broker, shared_agent
    evil_script = wanted_run("badscript-1", "pass")
    evil_script.spec.script.name = "../../../evil.py"
    evil_job = wanted_run("badjob-1", "pass")
    evil_job.job_id = "../../evil"
    evil_run = wanted_run("badrun-1", "pass")
    evil_run.run_id = "../../evil"
    await broker.want(evil_script, evil_job, evil_run, wanted_run("good-1", "pass"))
    for run_id in ("badscript-1", "badjob-1"):
        assert "not a plain file name" in (await exit_of(broker, run_id)).reason
    await exit_of(broker, "good-1")
    assert not list(agent.state_dir.parent.rglob("*evil*"))


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


@SHARED
async def test_one_agent_for_each_state_directory(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, tmp_path: Path
) -> None:
    broker, agent = shared_broker, shared_agent
    await until(lambda: broker.heard.hellos, seconds=DEADLINE)
    state_dir = agent.state_dir / "agent"
    second = AgentProcess(agent.state_dir, agent.command, tmp_path / "second.log")
    assert await second.wait() == 2
    said = second.log.read_text()
    assert f"An agent with pid {agent.process.pid} is running on {state_dir} already" in said
    assert "--state-dir" in said


async def test_a_wrong_token_is_said_once_and_tried_again(broker: ScriptedBroker, agent: AgentProcess) -> None:
    await until(lambda: broker.heard.hellos, seconds=DEADLINE)
    token = agent.state_dir / "token"
    token.write_text("wrong\n")
    await broker.stop()
    await broker.start()
    (agent.state_dir / "addresses.json").write_text(json.dumps({"nodes": broker.address}))
    await until(lambda: broker.tokens.count("Bearer wrong") >= 2, seconds=DEADLINE)
    token.write_text(f"{NODE_TOKEN}\n")
    await until(lambda: len(broker.heard.hellos) == 2, seconds=DEADLINE)
    log = agent.log.read_text()
    assert log.count("does not take this for the node") == 1
    assert NODE_TOKEN not in log


@SHARED
async def test_an_inference_server_that_dies_comes_back_on_the_same_ports(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess
) -> None:
    broker, agent = shared_broker, shared_agent
    await until(broker.heard.serving, seconds=DEADLINE)
    before = broker.heard.serving()
    state_file = agent.state_dir / "agent" / "serving.json"
    pid = json.loads(state_file.read_text())["pid"]
    heard = len(broker.heard.messages)
    os.kill(pid, 9)

    def told() -> list[str]:
        return [m.serving.http for m in broker.heard.messages[heard:] if m.HasField("serving")]

    await until(lambda: len(told()) >= 2, seconds=DEADLINE)
    assert told()[0] == ""
    assert broker.heard.serving() == before
    assert json.loads(state_file.read_text())["pid"] != pid


@SHARED
async def test_of_output_without_end_the_node_keeps_the_beginning_and_the_end(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess
) -> None:
    broker, agent = shared_broker, shared_agent
    script = "for number in range(24): print(number, 'x' * (1 << 20))\nprint('the end')\nraise SystemExit(3)"
    await broker.want(wanted_run("output-1", script))
    status = await exit_of(broker, "output-1")
    assert status.exit_code == 3
    assert status.log_tail.endswith("the end")
    await until(lambda: broker.heard.output("output-1").endswith(b"the end\n"), seconds=DEADLINE)
    log = RunLog(agent.state_dir / "agent" / "logs" / "output-1.log")
    assert log.read(0, 2) == (0, b"0 ")
    assert log.size == sum(len(f"{number} ") + (1 << 20) + 1 for number in range(24)) + len("the end\n")
    files = [path for path in (agent.state_dir / "agent" / "logs").rglob("*output-1*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= HEAD_BYTES + TAIL_BYTES * 5 // 4


@SHARED
async def test_a_script_that_reports_without_bounds_costs_the_broker_a_few_and_loses_no_tier(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, raw_trainer: str
) -> None:
    broker, agent = shared_broker, shared_agent
    await broker.want(wanted_run("flood-1", raw_trainer, arguments=("flood",), target=0.9))
    await until(lambda: 600 in [one.sequence for one in broker.heard.progress("flood-1")], seconds=DEADLINE)
    heard = broker.heard.progress("flood-1")
    assert 500 in [one.sequence for one in heard]  # it reached the tier
    seconds = (heard[-1].at.ToNanoseconds() - heard[0].at.ToNanoseconds()) / 1e9
    size = max(one.ByteSize() for one in heard)
    assert len(heard) * size < BYTES_AT_ONCE + seconds * BYTES_PER_SECOND + 10 * size
    assert broker.connections == 1
    log = (agent.state_dir / "agent" / "logs" / "flood-1.log").read_text()
    for reason in (BAD_NAME, "reports that come faster than", "connections to the socket"):
        assert log.count(reason) == 1, log


async def test_a_job_that_fills_the_disk_is_ended_with_the_reason_and_a_quiet_one_goes_on(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    at_once = (
        "import os, time\nos.posix_fallocate(os.open('data', os.O_CREAT | os.O_WRONLY), 0, 1 << 27)\ntime.sleep(600)"
    )
    slowly = (
        "import time\nfor number in range(600):\n  open(f'{number}', 'wb').write(bytes(1 << 21))\n  time.sleep(0.3)"
    )
    flags = ("--job-disk-bytes", str(1 << 26), "--disk-reserve-bytes", str(1 << 60))  # which no disk has left
    with agent_process(tmp_path / "state", broker.address, *flags):
        await broker.want(wanted_run("quiet-1", SLEEPER))
        await until(lambda: broker.heard.output("quiet-1"), seconds=DEADLINE)
        await broker.want(wanted_run("quiet-1", SLEEPER), wanted_run("large-1", at_once))
        large = await exit_of(broker, "large-1")
        assert "64.0 MiB are allowed" in large.reason
        await broker.want(wanted_run("quiet-1", SLEEPER), wanted_run("grows-1", slowly))
        grows = await exit_of(broker, "grows-1")
        assert "have to stay free" in grows.reason
        assert "[tiercel: the run is ended: the disk" in grows.log_tail
        assert not any(status.lost or status.HasField("exit_code") for status in (large, grows))
        assert broker.heard.exit("quiet-1") is None


async def test_a_state_directory_whose_path_is_too_long_for_a_socket(
    broker: ScriptedBroker, tmp_path: Path, linear: str
) -> None:
    with agent_process(tmp_path / ("deep" * 20) / ("deeper" * 15), broker.address):
        await broker.want(wanted_run("job-1", linear, arguments=(*SHORT, "2"), target=2.0))
        assert (await exit_of(broker, "job-1")).exit_code == 0
        assert len(broker.heard.progress("job-1")) == 2
