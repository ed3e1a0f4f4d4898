"""A real agent and the data sets that its operator offers: told, found by runs, and missed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testing.agent_process import AgentProcess
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.until import until
from tiercel.core.declared_data import DataDeclarations
from tiercel.v1 import common_pb2, nodes_pb2

READER = """
import os
print(sorted(name for name in os.environ if name.startswith("TIERCEL_DATA")))
print(open(os.environ["TIERCEL_DATA_LETTERS_A"] + "/a").read())
print(open(os.environ["TIERCEL_DATA_TABLE"]).read())
"""


def asking(run: nodes_pb2.WantedRun, *names: str) -> nodes_pb2.WantedRun:
    """The run, with data sets."""
    run.spec.data.extend(common_pb2.DataSet(name=name) for name in names)
    return run


def told_last(broker: ScriptedBroker) -> list[str]:
    """The data sets of the last heartbeat, or else of the hello."""
    beats: Sequence[nodes_pb2.Heartbeat | nodes_pb2.NodeHello] = [
        message.heartbeat for message in broker.heard.messages if message.HasField("heartbeat")
    ]
    return [each.name for each in (beats or broker.heard.hellos)[-1].data]


async def test_a_run_finds_what_the_operator_offers(
    broker: ScriptedBroker, agent: AgentProcess, tmp_path: Path
) -> None:
    """Declared while the agent runs, which notices by itself."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a").write_text("the letter a")
    (tmp_path / "table.csv").write_text("1,2,3")
    declarations = DataDeclarations(agent.state_dir / "agent")
    declarations.add("letters-a", tmp_path / "letters")
    declarations.add("table", tmp_path / "table.csv")
    declarations.add("unasked", tmp_path / "table.csv")
    await until(
        lambda: broker.heard.hellos and told_last(broker) == ["letters-a", "table", "unasked"], seconds=DEADLINE
    )
    assert str(tmp_path).encode() not in b"".join(message.SerializeToString() for message in broker.heard.messages)

    await broker.want(asking(wanted_run("job-1", READER), "letters-a", "table"))
    await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
    assert broker.heard.output("job-1").decode().splitlines() == [
        "['TIERCEL_DATA_LETTERS_A', 'TIERCEL_DATA_TABLE']",
        "the letter a",
        "1,2,3",
    ]


async def test_a_run_whose_data_vanished_is_lost_and_the_node_offers_it_no_more(
    broker: ScriptedBroker, agent: AgentProcess, tmp_path: Path
) -> None:
    (tmp_path / "table").write_text("1,2,3")
    DataDeclarations(agent.state_dir / "agent").add("table", tmp_path / "table")
    await until(lambda: broker.heard.hellos and told_last(broker) == ["table"], seconds=DEADLINE)
    (tmp_path / "table").unlink()
    (tmp_path / "table").symlink_to("/etc/passwd")
    await broker.want(asking(wanted_run("job-1", READER), "table"))
    await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
    status = broker.heard.exit("job-1")
    assert status is not None
    assert (status.lost, status.HasField("exit_code")) == (True, False)
    assert status.reason == "its node has the data set 'table' no more"
    await until(lambda: told_last(broker) == [], seconds=DEADLINE)
