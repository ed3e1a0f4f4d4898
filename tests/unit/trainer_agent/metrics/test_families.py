"""The node's numbers: bounded labels, whatever names hold."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiercel.core.prometheus import Family, to_text
from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.metrics.families import MAX_RUNS, of_disk, of_runs
from tiercel.trainer_agent.runs.numbers import RunNumbers, RunTotals, outcome_of
from tiercel.trainer_agent.runs.records import RunRecord
from tiercel.v1 import disk_pb2, nodes_pb2

HOSTILE = 'a"b\\c\nd{e="f"} 7\r\t\udc80'


def run_of(number: int, state: str = "running") -> RunNumbers:
    share = Share(CpuShare(0.25, 1.5), (AcceleratorShare("GPU-1", 0.5),))
    usage = nodes_pb2.RunUsage(cpu_seconds=number, memory_bytes=7)
    return RunNumbers(f"job{number:04}-1", f"job{number:04}", state, share, usage)


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Values by name and by the values of labels, as Prometheus' own parser reads them."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_of_a_thousand_runs_all_are_counted_and_a_bounded_number_is_told_of() -> None:
    runs = [run_of(number, "starting" if number < 10 else "running") for number in reversed(range(1000))]
    totals = RunTotals(Counter(failed=3), reports=50, reports_left_out=20)
    read = values(to_text(of_runs(runs, totals, unconfirmed=4)))
    assert (read["tiercel_agent_runs", ("starting",)], read["tiercel_agent_runs", ("running",)]) == (10, 990)
    assert len([name for name, _ in read if name == "tiercel_agent_run_memory_bytes"]) == MAX_RUNS
    assert read["tiercel_agent_run_cpu_seconds_total", ("job0150", "job0150-1")] == 150
    assert read["tiercel_agent_run_cpu_cap_cores", ("job0000", "job0000-1")] == 1.5
    assert read["tiercel_agent_run_accelerator_fraction_ratio", ("job0000", "job0000-1", "GPU-1")] == 0.5
    assert read["tiercel_agent_runs_ended_total", ("failed",)] == 3
    assert read["tiercel_agent_runs_ended_total", ("lost",)] == 0, "what is 0 is told as well"
    assert (read["tiercel_agent_reports_total", ()], read["tiercel_agent_reports_left_out_total", ()]) == (50, 20)


def test_whatever_names_hold_is_one_label_and_no_line_of_its_own() -> None:
    text = to_text([Family("tiercel_x", "Words", [({"name": HOSTILE, "other": "1"}, 2.0)])])
    assert values(text) == {("tiercel_x", (HOSTILE.replace("\udc80", "?"), "1")): 2.0}
    assert len(text.replace("\r", "").splitlines()) == 3


def test_what_is_not_known_of_the_disk_is_not_told() -> None:
    assert list(of_disk(None, None)) == []
    disk = disk_pb2.NodeDisk(parts=[disk_pb2.RoomTaken(name="models", size_bytes=5)])
    assert values(to_text(of_disk((1, 2), disk)))["tiercel_agent_disk_used_bytes", ("models",)] == 5


@pytest.mark.parametrize(
    ("record", "was_asked", "outcome"),
    [
        ({"exit_code": 0}, False, "completed"),
        ({"exit_code": 1}, False, "failed"),
        ({"exit_code": -15}, True, "stopped"),
        ({"exit_code": 0, "moved": True}, True, "moved"),
        ({"exit_code": -15, "lost": True}, True, "lost"),
        ({"exit_code": None}, True, "failed"),
    ],
)
def test_runs_are_counted_by_how_they_ended(record: dict[str, int], was_asked: bool, outcome: str) -> None:
    assert outcome_of(RunRecord("j-1", "j", "process", **record), was_asked=was_asked) == outcome  # type: ignore[arg-type]
