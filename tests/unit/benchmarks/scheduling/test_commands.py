"""What the command of the experiments refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from benchmarks.scheduling.commands import app


def test_what_there_is_not_is_refused_with_what_there_is(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    refused = CliRunner().invoke(app, ["run", "--quick", "--output", str(output), "--arm", "nonsense"])
    assert refused.exit_code == 2
    assert "fair-slices" in refused.output
    assert not output.exists()
