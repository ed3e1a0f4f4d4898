from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from benchmarks.results import Bar, ResultFileError, describe_machine, read_result, read_results, write_result


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


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    bars = (Bar("swap", 0.4, "<= 2.0", "s"), Bar("failed requests", 3, "== 0"))
    path = write_result("demo", command="make demo", figures={"requests": 10}, bars=bars, folder=tmp_path)
    result = read_result(path)
    assert (result.name, result.command, result.bars) == ("demo", "make demo", bars)


def test_a_result_file_has_the_fields_that_were_promised(tmp_path: Path) -> None:
    path = write_result("demo", command="make demo", figures={"a": 1}, bars=[Bar("b", 1, "<= 2", "s")], folder=tmp_path)
    document = json.loads(path.read_text())
    assert list(document) == ["name", "made_at", "command", "machine", "versions", "figures", "bars"]
    assert document["bars"] == [{"name": "b", "value": 1, "goal": "<= 2", "unit": "s", "holds": True}]
    assert set(document["machine"]) == {"cpu", "cores", "memory_bytes", "kernel", "cgroup"}
    assert {"python", "tiercel", "torch", "onnxruntime", "numpy", "grpcio"} <= set(document["versions"])


def test_whether_a_bar_holds_is_worked_out_again_when_read(tmp_path: Path) -> None:
    path = write_result("demo", command="make demo", figures={}, bars=[Bar("b", 3, "<= 2")], folder=tmp_path)
    path.write_text(path.read_text().replace('"holds": false', '"holds": true'))
    assert [bar.holds for bar in read_result(path).bars] == [False]


def test_the_machine_is_described_without_naming_it() -> None:
    text = json.dumps(describe_machine())
    assert socket.gethostname() not in text
    assert "/" not in text


def test_figures_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_result("demo", command="make demo", figures={"p99": float("nan")}, bars=[], folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(ResultFileError, match=r"odd\.json"):
        read_results(tmp_path)
