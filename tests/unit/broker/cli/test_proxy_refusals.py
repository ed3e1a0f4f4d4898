"""What the proxy refuses before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tiercel.broker.cli.app import app


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
