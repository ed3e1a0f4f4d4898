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


def write(folder: Path, delivered: int) -> None:
    figures = {"runs": 1, "incomplete_runs": [], "tiers": 4, "delivered": delivered, "errors": 0, "left_over": 0}
    write_result("scheduling-quick", command="make it", figures=figures, folder=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, 3)
    return tmp_path


def test_every_bar_is_a_line_with_its_verdict(folder: Path) -> None:
    result = CliRunner().invoke(app, ["--folder", str(folder)])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "holds   scheduling-quick: runs that came to their end: 1 (goal == 1)",
        "MISSED  scheduling-quick: tiers delivered: 3 (goal == 4)",
        "holds   scheduling-quick: errors in the broker's log: 0 (goal == 0)",
        "holds   scheduling-quick: processes left behind: 0 (goal == 0)",
        "3 of 4 bars hold.",
    ]


def test_strict_fails_when_a_bar_does_not_hold(folder: Path) -> None:
    assert CliRunner().invoke(app, ["--folder", str(folder), "--strict"]).exit_code == 1


def test_strict_succeeds_when_all_hold(tmp_path: Path) -> None:
    write(tmp_path, 4)
    assert CliRunner().invoke(app, ["--folder", str(tmp_path), "--strict"]).exit_code == 0


def test_json_is_for_programs(folder: Path) -> None:
    result = CliRunner().invoke(app, ["--folder", str(folder), "--json"])
    assert [(bar["name"], bar["holds"]) for bar in json.loads(result.stdout)][1] == ("tiers delivered", False)


def test_bars_that_the_figures_do_not_give_are_an_error_until_they_are_written_again(folder: Path) -> None:
    path = folder / "scheduling-quick.json"
    path.write_text(path.read_text().replace('"value": 3,', '"value": 4,'))
    result = CliRunner().invoke(app, ["--folder", str(folder)])
    assert result.exit_code == 1
    assert "'tiers delivered' is 4 (goal == 4) in the file, and 3 (goal == 4) by its figures" in result.output
    assert CliRunner().invoke(app, ["--folder", str(folder), "--rewrite"]).exit_code == 0
    assert CliRunner().invoke(app, ["--folder", str(folder)]).exit_code == 0


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
