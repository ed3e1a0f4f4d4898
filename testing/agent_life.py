"""What tests of a whole agent start, and what they ask of it."""

from __future__ import annotations

import json
import re

import aiohttp
import psutil

from testing.agent_process import AgentProcess
from testing.nodes_broker import DEADLINE, ScriptedBroker
from testing.until import until
from tiercel.v1 import nodes_pb2

# A script that goes on until it is ended.
SLEEPER = "import os, time\nos.write(1, b'pid %d\\n' % os.getpid())\ntime.sleep(600)"


DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPER}"


SHORT = ("--metric", "score", "--epochs")


TRAIN = ("--metric", "score", "--epochs", "100000", "--step-sleep-seconds", "0.01")


SELDOM = (*TRAIN, "--step-sleep-seconds", "0.1")  # so that no report gives way to a better and a later one


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
