"""``python -m tiercel.broker.simulation`` as somebody types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def simulation(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiercel.broker.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_of_one_policy_is_the_same_again() -> None:
    arguments = ["--policy", "tradl", "--jobs", "12", "--nodes", "2", "--seed", "1", "--json"]
    outputs = [json.loads(simulation(*arguments).stdout) for _ in range(2)]
    timings = ("wall_seconds", "median_decision_seconds", "longest_decision_seconds")
    first, second = ({name: value for name, value in each.items() if name not in timings} for each in outputs)
    assert first == second
    assert (first["policy"], first["jobs"], first["missed_tiers"]) == ("tradl", 12, 0)
    assert first["mean_time_to_tier_1_seconds"] > 0


def test_several_policies_are_rows_of_a_table() -> None:
    finished = simulation("--policy", "fair", "--policy", "fifo", "--jobs", "8", "--nodes", "1", "--endpoints", "0.2")
    lines = finished.stdout.splitlines()
    assert finished.returncode == 0
    assert "8 jobs, 1 nodes" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["POLICY", "fair", "fifo"]


def test_nodes_may_have_accelerators_which_a_part_of_the_jobs_uses() -> None:
    arguments = ("--policy", "utility", "--jobs", "8", "--nodes", "2", "--accelerators", "2", "--intensity", "3")
    found = json.loads(simulation(*arguments, "--json").stdout)
    assert 0 < found["accelerator_utilisation"] <= 1
    assert found["missed_tiers"] == 0
    none_uses_any = json.loads(simulation(*arguments, "--accelerated", "0", "--json").stdout)
    assert none_uses_any["accelerator_utilisation"] == 0


def test_a_trace_may_take_the_place_of_drawn_jobs(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit_seconds,work_cpu_seconds,tiers\n0,20,0.9\n3,10,0.5;0.95\n", encoding="utf-8")
    assert json.loads(simulation("--trace", str(trace), "--json").stdout)["jobs"] == 2
    trace.write_text("submit_seconds,work_cpu_seconds,tiers\n0,much,0.9\n", encoding="utf-8")
    refused = simulation("--trace", str(trace))
    assert refused.returncode == 2
    assert "row 2, column work_cpu_seconds: 'much' is not a number" in refused.stderr


def test_an_unknown_policy_or_option_is_refused_in_a_sentence() -> None:
    unknown = simulation("--policy", "none")
    assert (unknown.returncode, "There is no policy 'none'" in unknown.stderr) == (2, True)
    option = simulation("--policy", "tradl", "--option", "speed=9")
    assert (option.returncode, "no option 'speed'" in option.stderr) == (2, True)
