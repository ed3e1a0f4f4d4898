"""docs/proxy.md tells of every option of the proxy, and what the proxy refuses before it begins."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from testing.command_line import command_of
from tiercel.broker.cli.app import app

DOCUMENTS = Path(__file__).resolve().parents[4] / "docs"


def test_every_option_of_the_proxy_is_told_of() -> None:
    command, _ = command_of(["proxy", "config"])
    known = {name for one in command.params if isinstance(one, click.Option) for name in one.opts}
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
