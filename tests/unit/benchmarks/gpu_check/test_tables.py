from __future__ import annotations

import pytest

from benchmarks.gpu_check.frame import Findings, Row
from benchmarks.gpu_check.tables import plain_line, print_table, summary


def found() -> dict[str, Findings]:
    findings = Findings()
    findings.add("share 0.5: error", 0.4, "points", "<= 3", "got 0.504")
    findings.add("share 0.25: error", 5.0, "points", "<= 3")
    return {"pacing": findings, "memory": Findings([Row("a limit", note="needs: pip install torch")])}


def test_a_line_has_verdict_value_and_goal_and_what_was_not_run_says_why() -> None:
    pacing, memory = found().values()
    assert plain_line("pacing", pacing.rows[0]).splitlines() == [
        "holds    pacing   share 0.5: error: 0.4 points (goal <= 3 points)",
        "                  got 0.504",
    ]
    assert plain_line("memory", memory.rows[0]).splitlines() == [
        "not run  memory   a limit",
        "                  needs: pip install torch",
    ]


def test_the_summary_counts_bars_and_what_was_not_run() -> None:
    assert summary(found()) == "Bars: 1 holds, 1 MISSED, 1 not run."


def test_outside_of_a_terminal_the_table_is_lines_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("GPU check: a device", found())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "GPU check: a device"
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" " * 18)] == ["holds", "MISSED", "not"]
