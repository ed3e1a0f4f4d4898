from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tiercel.broker.simulation.cluster import NO_PENALTY
from tiercel.broker.simulation.fidelity import compare, replay
from tiercel.broker.simulation.recordings import FORMAT, RecordingError, read_recording
from tiercel.broker.simulation.scenario import MachineSettings

Json = dict[str, Any]


def recording() -> Json:
    """Two jobs recorded alone, and a live run of both on one core that took a quarter longer than it should."""
    curve = [{"cpu_seconds": 2.0, "value": 0.5}, {"cpu_seconds": 3.0, "value": 0.9}]
    job = {"workload": "digits", "tiers": [0.5, 0.9], "startup_cpu_seconds": 1.0, "curve": curve}
    return {
        "format": FORMAT,
        "node": {"cpu_cores": 1.0},
        "jobs": [{"name": "a", **job}, {"name": "b", **job}],
        "runs": [
            {
                "name": "fair-1",
                "policy": "fair",
                "interval_seconds": 1.0,
                "jobs": [
                    {"job": "b", "arrived_at": 0.5, "tier_seconds": [5.0, None]},
                    {"job": "a", "arrived_at": 0.0, "tier_seconds": [4.0, 6.0]},
                ],
            }
        ],
    }


def write(folder: Path, document: Json) -> Path:
    path = folder / "live.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_live_run_is_replayed_at_its_times(tmp_path: Path) -> None:
    known = read_recording(write(tmp_path, recording()))
    result = replay(known, known.runs[0], MachineSettings(colocation=NO_PENALTY))
    # a alone for half a second, then both at half a core: tier 1 of a at 3.5 s, of b (2 CPU seconds) at 4.5 s.
    assert [(job.name, job.time_to_tier(1)) for job in result.jobs] == [("a", 3.5), ("b", 4.0)]


def test_errors_are_relative_to_what_happened_live(tmp_path: Path) -> None:
    fidelity = compare(read_recording(write(tmp_path, recording())), MachineSettings(colocation=NO_PENALTY))
    errors = {(each.job, each.tier): each.error for each in fidelity.comparisons}
    assert errors == pytest.approx({("a", 1): 0.125, ("a", 2): 0.5 / 6, ("b", 1): 0.2})
    assert fidelity.median_error(1) == pytest.approx((0.125 + 0.2) / 2)
    assert fidelity.p90_error(1, "fair") == pytest.approx(0.2)
    assert fidelity.policies() == ("fair",)


def test_a_tier_that_was_reached_live_alone_is_an_infinite_error(tmp_path: Path) -> None:
    document = recording()
    document["jobs"][0]["tiers"] = [0.5, 0.95]
    fidelity = compare(read_recording(write(tmp_path, document)))
    assert fidelity.median_error(2) == float("inf")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other/9"}, "the format is 'other/9'"),
        ({"jobs": []}, "run fair-1: job 'b' was not recorded alone"),
        ({"node": {}}, r"KeyError\('cpu_cores'\)"),
        ({"runs": [{"name": "x"}]}, r"KeyError\('jobs'\)"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, change: Json, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        read_recording(write(tmp_path, recording() | change))
