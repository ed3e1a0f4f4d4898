"""An agent as a process of its own, a scripted broker over real gRPC, real training processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from testing.agent_life import (
    SHORT,
    SLEEPER,
    TRAIN,
    exit_of,
    running_pid,
    scraped,
)
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import DEADLINE, NODE_TOKEN, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.core.kept_output import HEAD_BYTES, TAIL_BYTES
from tiercel.trainer_agent.reports.metric_names import BAD_NAME
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.reports.sieve import BYTES_AT_ONCE, BYTES_PER_SECOND
from tiercel.v1 import nodes_pb2

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent."""


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
