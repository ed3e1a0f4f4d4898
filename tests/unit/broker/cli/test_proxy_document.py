"""What docs/proxy.md and docs/mqtt.md have people type is understood, and what the proxy refuses before it begins."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tiercel.broker.cli.app import app

DOCUMENTS = Path(__file__).resolve().parents[4] / "docs"


@pytest.mark.parametrize(("document", "count"), [("proxy.md", 2), ("mqtt.md", 2)])
def test_every_command_line_of_the_document_is_understood(document: str, count: int) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCUMENTS / document).read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("tiercel ")]
    assert len(lines) == count
    for line in lines:
        command: Any = typer.main.get_command(app)
        words = shlex.split(line, comments=True)[1:]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context("tiercel", words)


def test_every_option_of_the_proxy_is_told_of() -> None:
    command: Any = typer.main.get_command(app)
    known = {name for one in command.commands["proxy"].commands["config"].params for name in one.opts}
    assert known == set(re.findall(r"`(--[a-z-]+)", (DOCUMENTS / "proxy.md").read_text()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--http", "10.0.0.5:8080"], "give --certificate"),
        (["--grpc", "0.0.0.0:8081"], "give --certificate"),
        (["--http", "127.0.0.1:80 user root"], "not an IPv4 address and a port"),
        (["--http", "8080"], "not an IPv4 address and a port"),
        (["--http", "127.0.0.1:99999"], "not an IPv4 address and a port"),
        (["--name", "a } # b"], "no host's name"),
        (["--certificate", "/tmp/a b"], "choose another"),
        (["--dir", "/tmp/x\nuser root"], "choose another"),
    ],
)
def test_what_would_be_unsafe_is_refused_before_anything_is_written(
    options: list[str], words: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["proxy", "config", "--dir", str(tmp_path / "proxy"), *options])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "proxy").exists()
