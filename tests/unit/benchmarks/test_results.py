from __future__ import annotations

import json
import socket
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.judges import JUDGES
from benchmarks.results import (
    Bar,
    Result,
    ResultFileError,
    commit,
    describe_machine,
    differences,
    folder_of,
    read_result,
    read_results,
    write_result,
)


@pytest.mark.parametrize(
    ("value", "goal", "holds"),
    [
        (2.0, "<= 2.0", True),
        (2.01, "<= 2.0", False),
        (50, ">= 50", True),
        (49.9, ">= 50", False),
        (0, "== 0", True),
        (1, "== 0", False),
        (1.9, "< 2", True),
        (2.0, "< 2", False),
        (-1, "> -2", True),
        (1e-4, "<= 1e-3", True),
        (None, "<= 2.0", False),
        (float("nan"), ">= 0", False),
    ],
)
def test_a_bar_holds_when_the_value_is_as_the_goal_asks(value: float | None, goal: str, holds: bool) -> None:
    assert Bar("it", value, goal).holds is holds


@pytest.mark.parametrize("goal", ["", "2.0", "about 2", "<= two", "=< 2"])
def test_a_goal_that_is_none_is_refused(goal: str) -> None:
    with pytest.raises(ResultFileError, match="is not a goal"):
        Bar("it", 1.0, goal)


FIGURES = {"runs": 2, "planned_runs": 2, "incomplete_runs": [], "tiers": 4, "delivered": 3, "errors": 0, "left_over": 0}
NAME = "scheduling-quick"


def test_what_is_written_is_read_again_with_the_bars_of_its_figures(tmp_path: Path) -> None:
    written = write_result(NAME, command="make it", figures=FIGURES, folder=tmp_path)
    result = read_result(tmp_path / f"{NAME}.json")
    assert result == written
    assert Bar("tiers delivered", 3, "== 4") in result.bars
    assert differences(result) == []


def test_a_result_file_has_the_fields_that_were_promised(tmp_path: Path) -> None:
    write_result(NAME, command="make it", figures=FIGURES, folder=tmp_path)
    document = json.loads((tmp_path / f"{NAME}.json").read_text())
    assert list(document) == ["name", "made_at", "commit", "command", "machine", "versions", "figures", "bars"]
    assert {"name": "tiers delivered", "value": 3, "goal": "== 4", "unit": "", "holds": False} in document["bars"]
    assert set(document["machine"]) == {"cpu", "cores", "memory_bytes", "kernel", "cgroup"}
    assert {"python", "tiercel", "torch", "onnxruntime", "numpy", "grpcio"} <= set(document["versions"])


def test_a_bar_that_was_written_by_hand_is_found_out(tmp_path: Path) -> None:
    write_result(NAME, command="make it", figures=FIGURES, folder=tmp_path)
    path = tmp_path / f"{NAME}.json"
    path.write_text(path.read_text().replace('"value": 3,', '"value": 4,').replace('"holds": false', '"holds": true'))
    (words,) = differences(read_result(path))
    assert words == "'tiers delivered' is 4 (goal == 4) in the file, and 3 (goal == 4) by its figures"


@pytest.mark.parametrize("result", read_results(), ids=lambda result: result.name)
def test_the_bars_of_every_kept_result_are_those_that_its_figures_give(result: Result) -> None:
    assert differences(result) == []


def test_a_result_that_nobody_judges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match=r"no benchmark makes a result 'made-up'.*judges"):
        write_result("made-up", command="make it", figures={}, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_judge_is_there() -> None:
    for home in JUDGES.values():
        module, _, function = home.partition(":")
        assert callable(getattr(import_module(module), function))


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_result_names_its_commit_and_says_when_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert commit() == ""
    git(tmp_path, "init")
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    clean = commit()
    assert len(clean) == 12
    (tmp_path / "file").write_text("b")
    assert commit() == f"{clean}-dirty"


def test_only_what_is_to_be_kept_goes_into_the_project(tmp_path: Path) -> None:
    assert (folder_of(), folder_of(tmp_path), folder_of(tmp_path, keep=True)) == (results.BUILD, tmp_path, results.KEPT)


def test_the_machine_is_described_without_naming_it() -> None:
    text = json.dumps(describe_machine())
    assert socket.gethostname() not in text
    assert "/" not in text


def test_figures_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_result(NAME, command="make it", figures=FIGURES | {"p99": float("nan")}, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(ResultFileError, match=r"odd\.json"):
        read_results(tmp_path)
