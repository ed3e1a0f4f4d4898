"""``python -m tiercel.broker.simulation`` as somebody types it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from testing.warm_python import lasting_python


def simulation(*arguments: str, code: int = 0) -> str:
    """What it prints, in a process that has its modules loaded when it begins."""
    template = lasting_python(("tiercel.broker.simulation.command_line",))
    process = template.start(("-m", "tiercel.broker.simulation", *arguments), os.environ)
    output, _ = process.communicate(60)
    assert process.returncode == code, output
    return output


def figures(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(simulation(*arguments, "--json"))
    return found


def test_figures_of_one_policy_are_json() -> None:
    found = figures("--policy", "tradl", "--jobs", "12", "--nodes", "2", "--seed", "1")
    assert (found["policy"], found["jobs"], found["missed_tiers"]) == ("tradl", 12, 0)
    assert found["mean_time_to_tier_1_seconds"] > 0


def test_several_policies_are_rows_of_a_table() -> None:
    told = simulation("--policy", "fair", "--policy", "fifo", "--jobs", "8", "--nodes", "1", "--endpoints", "0.2")
    lines = told.splitlines()
    assert "8 jobs, 1 nodes" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["POLICY", "fair", "fifo"]


def test_nodes_may_have_accelerators_which_a_part_of_the_jobs_uses() -> None:
    arguments = ("--policy", "utility", "--jobs", "8", "--nodes", "2", "--accelerators", "2", "--intensity", "3")
    found = figures(*arguments)
    assert 0 < found["accelerator_utilisation"] <= 1
    assert found["missed_tiers"] == 0
    none_uses_any = figures(*arguments, "--accelerated", "0")
    assert none_uses_any["accelerator_utilisation"] == 0


def test_a_trace_may_take_the_place_of_drawn_jobs(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_seconds,work_cpu_seconds,tiers\n0,20,0.9\n3,10,0.5;0.95\n", encoding="utf-8")
    assert figures("--trace", str(trace))["jobs"] == 2
    trace.write_text("submit_seconds,work_cpu_seconds,tiers\n0,much,0.9\n", encoding="utf-8")
    refused = simulation("--trace", str(trace), code=2)
    assert "row 2, column work_cpu_seconds: 'much' is not a number" in refused


def test_an_unknown_policy_or_option_is_refused_in_a_sentence() -> None:
    assert "There is no policy 'none'" in simulation("--policy", "none", code=2)
    assert "no option 'speed'" in simulation("--policy", "tradl", "--option", "speed=9", code=2)
