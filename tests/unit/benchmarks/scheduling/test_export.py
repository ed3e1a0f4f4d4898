from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduling.export import export
from benchmarks.scheduling.recordings import Recordings
from tests.support.scheduling_runs import job_outcome, recording, run_outcome
from tiercel.broker.simulation.fidelity import compare
from tiercel.broker.simulation.recordings import read_recording

KNOWN = Recordings({("cnn-small", 0): recording()})


def test_the_simulator_reads_and_replays_what_is_exported(tmp_path: Path) -> None:
    # As recorded alone: tiers after 3 and 4 CPU seconds, with a core for each job.
    run = run_outcome("flowcon", [job_outcome("a", reached=(3.0, 4.0)), job_outcome("b", reached=(3.0, 4.0))])
    read = read_recording(export([run], KNOWN, 2, tmp_path / "runs.json"))
    assert read.cpu_cores == 2
    assert read.runs[0].options["interval"] == "3.0"
    found = compare(read)
    assert len(found.comparisons) == 4
    assert found.median_error(1) == pytest.approx(0.0, abs=0.05)


def test_what_the_format_cannot_tell_is_left_out(tmp_path: Path) -> None:
    runs = [run_outcome("srpt-oracle"), run_outcome("utility-history"), run_outcome(jobs=[job_outcome(finished=None)])]
    runs.append(run_outcome(jobs=[job_outcome(kind="gru-small")]))
    assert read_recording(export(runs, KNOWN, 2, tmp_path / "runs.json")).runs == ()
