"""Commands of a node's operator, and what tenants see of it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from testing.command_line import Tiercel
from testing.jobs_service import Script
from tiercel.broker.cli import app
from tiercel.core.declared_data import DataDeclarations
from tiercel.v1 import common_pb2, jobs_pb2


def test_add_list_and_remove(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2\n")
    state = ["--state-dir", str(tmp_path / "state")]

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["node", "data", *arguments, *state])
        assert result.exit_code == 0, result.output
        return result.output

    assert "offers one" in run("ls")
    assert str(tmp_path / "train.csv") in run("add", "table", str(tmp_path / "train.csv"))
    assert list(DataDeclarations(tmp_path / "state" / "agent").read()) == ["table"]
    assert run("ls").split()[4:] == ["table", "4", "KiB", "there", str(tmp_path / "train.csv")]
    (tmp_path / "train.csv").unlink()
    (row,) = json.loads(run("ls", "--json"))
    assert (row["name"], row["state"], row["path"]) == ("table", "gone", str(tmp_path / "train.csv"))
    run("remove", "table")
    assert DataDeclarations(tmp_path / "state" / "agent").read() == {}


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    command = ["node", "data", "add", "table", str(tmp_path / "nowhere"), "--agent-dir", str(tmp_path / "agent")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "nowhere cannot be used (No such file or directory)" in result.output
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "data.json").write_text("{")
    result = CliRunner().invoke(app, ["node", "data", "ls", "--agent-dir", str(tmp_path / "agent")])
    assert result.exit_code == 1
    assert "data.json" in result.output


def test_tenants_see_names_and_sizes(tiercel: Tiercel, script: Script) -> None:
    data = [common_pb2.NodeData(name="digits"), common_pb2.NodeData(name="imagenet", size_bytes=150 << 30)]
    script.nodes.append(jobs_pb2.Node(id="n1", state=jobs_pb2.NODE_STATE_ONLINE, cpu_cores=2, data=data))

    lines = [line.split() for line in tiercel("nodes").stdout.splitlines()]

    assert lines[3:] == [["NODE", "DATA", "SET", "SIZE"], ["n1", "digits", "-"], ["n1", "imagenet", "150", "GiB"]]
    told = json.loads(tiercel("nodes", "--json").stdout)[0]["data"]
    assert told == [{"name": "digits", "size_bytes": None}, {"name": "imagenet", "size_bytes": 150 << 30}]
