from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.bars import main, shown_value
from benchmarks.results import Bar, write_result

app = typer.Typer()
app.command()(main)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bars = [Bar("swap", 0.4, "<= 2.0", "s"), Bar("failed requests", 3, "== 0")]
    write_result("demo", command="make demo", figures={}, bars=bars, folder=tmp_path)
    return tmp_path


def test_every_bar_is_a_line_with_its_verdict(folder: Path) -> None:
    result = CliRunner().invoke(app, ["--folder", str(folder)])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "holds   demo: swap: 0.4 s (goal <= 2.0 s)",
        "MISSED  demo: failed requests: 3 (goal == 0)",
        "1 of 2 bars hold.",
    ]


def test_strict_fails_when_a_bar_does_not_hold(folder: Path) -> None:
    assert CliRunner().invoke(app, ["--folder", str(folder), "--strict"]).exit_code == 1


def test_strict_succeeds_when_all_hold(tmp_path: Path) -> None:
    write_result("demo", command="make demo", figures={}, bars=[Bar("b", 1, "<= 2")], folder=tmp_path)
    assert CliRunner().invoke(app, ["--folder", str(tmp_path), "--strict"]).exit_code == 0


def test_json_is_for_programs(folder: Path) -> None:
    result = CliRunner().invoke(app, ["--folder", str(folder), "--json"])
    assert [(bar["result"], bar["name"], bar["holds"]) for bar in json.loads(result.stdout)] == [
        ("demo", "swap", True),
        ("demo", "failed requests", False),
    ]


def test_no_results_say_how_to_make_some(tmp_path: Path) -> None:
    assert "make demo" in CliRunner().invoke(app, ["--folder", str(tmp_path)]).stdout


def test_a_broken_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{")
    result = CliRunner().invoke(app, ["--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "odd.json" in result.output


@pytest.mark.parametrize(
    ("value", "shown"), [(3, "3 s"), (0.4, "0.4 s"), (0.12345, "0.123 s"), (61234.4, "61234 s"), (None, "not measured")]
)
def test_values_are_shown_with_as_many_digits_as_people_need(value: float | None, shown: str) -> None:
    assert shown_value(Bar("b", value, "<= 1", "s")) == shown
