"""Files that runs leave behind, as a real agent sends them; a broker that does as told."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.agent_life import exit_of
from testing.agent_process import AgentProcess, agent_process
from testing.nodes_broker import ScriptedBroker, wanted_run
from testing.until import until
from tiercel.v1 import nodes_pb2

SHARED = pytest.mark.asyncio(loop_scope="module")
"""For tests that do each other no harm: they share an agent, and their runs have names of their own."""
LEAVES = """
import os, sys
os.makedirs("reports")
open("reports/a.html", "w").write("<p>" * 500_000)
open("reports/b.html", "w").write("same")
open("c.html", "w").write("same")
os.symlink("/etc/passwd", "reports/passwd.html")
sys.exit(int(sys.argv[1]))
"""
FILES = {"reports/a.html": b"<p>" * 500_000, "reports/b.html": b"same", "c.html": b"same"}


def leaves(
    run_id: str, exit_code: int = 0, outputs: tuple[str, ...] = ("reports/*.html", "c.html")
) -> nodes_pb2.WantedRun:
    run = wanted_run(run_id, LEAVES, arguments=(str(exit_code),))
    run.spec.outputs.extend(outputs)
    return run


@SHARED
@pytest.mark.parametrize("exit_code", [0, 3])
async def test_files_are_with_the_broker_before_the_end_is_told_also_of_a_run_that_failed(
    shared_broker: ScriptedBroker, shared_agent: AgentProcess, exit_code: int
) -> None:
    broker, run_id = shared_broker, f"ends{exit_code}-1"
    await broker.want(leaves(run_id, exit_code))
    assert (await exit_of(broker, run_id)).exit_code == exit_code
    assert broker.files[run_id] == FILES
    await until(lambda: b"files that are kept: 3" in broker.heard.output(run_id), seconds=60.0)
    assert b"[tiercel: reports/passwd.html is not kept: it is a link]" in broker.heard.output(run_id)
    assert list((shared_agent.state_dir / "agent" / "outgoing").iterdir()) == []


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_run_without_outputs_sends_nothing_and_one_without_matches_says_so(
    shared_broker: ScriptedBroker,
) -> None:
    broker = shared_broker
    await broker.want(leaves("none-1", outputs=()), leaves("other-1", outputs=("*.png",)))
    await exit_of(broker, "none-1")
    await exit_of(broker, "other-1")
    assert not broker.files.keys() & {"none-1", "other-1"}
    said = b"no file that it left behind matches the job's outputs"
    await until(lambda: said in broker.heard.output("other-1"), seconds=60.0)
    assert said not in broker.heard.output("none-1")


@pytest.mark.usefixtures("agent")
async def test_what_the_broker_does_not_keep_is_told_in_the_log_and_ends_nothing(broker: ScriptedBroker) -> None:
    broker.leaves_out = {"c.html": "the files of a job may have 10 bytes together"}
    await broker.want(leaves("a-1"))
    assert (await exit_of(broker, "a-1")).exit_code == 0
    assert set(broker.files["a-1"]) == {"reports/a.html", "reports/b.html"}
    said = b"[tiercel: c.html is not kept: the files of a job may have 10 bytes together]"
    await until(lambda: said in broker.heard.output("a-1"), seconds=60.0)
    broker.refuses_files = "that is no path"
    await broker.want(leaves("b-1"))
    assert (await exit_of(broker, "b-1")).exit_code == 0
    refused = b"[tiercel: none of its files are kept: the broker refuses: that is no path]"
    await until(lambda: refused in broker.heard.output("b-1"), seconds=60.0)


@SHARED
@pytest.mark.usefixtures("shared_agent")
async def test_a_broker_whose_disk_is_full_gets_them_once_there_is_room(shared_broker: ScriptedBroker) -> None:
    broker = shared_broker
    broker.full_disks = 2
    await broker.want(leaves("full-1"))
    assert (await exit_of(broker, "full-1")).exit_code == 0
    assert (broker.files["full-1"], broker.full_disks) == (FILES, 0)


async def test_an_agent_that_is_killed_while_it_sends_goes_on_when_it_is_back(
    broker: ScriptedBroker, agent: AgentProcess, tmp_path: Path
) -> None:
    broker.holds_files = True
    await broker.want(leaves("a-1", 3))
    await until(lambda: broker.held_files, seconds=60.0)
    assert broker.heard.exit("a-1") is None
    await agent.kill()
    broker.holds_files = False
    with agent_process(tmp_path / "state", broker.address):
        status = await exit_of(broker, "a-1")
    assert (status.exit_code, status.lost) == (3, False)
    assert broker.files["a-1"] == FILES


@pytest.mark.usefixtures("agent")
async def test_a_broker_that_goes_while_files_are_sent_gets_them_when_it_is_back(broker: ScriptedBroker) -> None:
    broker.holds_files = True
    await broker.want(leaves("a-1"))
    await until(lambda: broker.held_files, seconds=60.0)
    port = int(broker.address.rpartition(":")[2])
    await broker.stop()
    broker.holds_files = False
    await broker.start(port)
    assert (await exit_of(broker, "a-1")).exit_code == 0
    assert broker.files["a-1"] == FILES
