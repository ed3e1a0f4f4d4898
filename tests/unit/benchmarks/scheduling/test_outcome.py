from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.scheduling.outcome import Predicted, RunOutcome, Served
from tests.support.scheduling_runs import job_outcome, run_outcome
from tiercel.core.what_if import Span


@pytest.mark.parametrize("served", [None, Served((0.5, 1.0), (1, 2), (1, 2), 40, 1, 12.5)], ids=["idle", "served"])
def test_an_outcome_is_read_as_it_was_written(tmp_path: Path, served: Served | None) -> None:
    outcome = run_outcome(jobs=[job_outcome(), job_outcome("b", reached=(2.0, None), finished=None)], served=served)
    outcome = dataclasses.replace(outcome, predictions=(Predicted(1.0, Span(2.0, 1.0, 3.0), None),))
    outcome.write(tmp_path / "run.json")
    assert RunOutcome.read(tmp_path / "run.json") == outcome


def test_a_run_is_complete_when_every_job_delivered_all_and_ended() -> None:
    done = job_outcome()
    undelivered = dataclasses.replace(done, delivered_seconds=(4.5, None))
    assert run_outcome(jobs=[done, done]).complete
    assert not run_outcome(jobs=[done, undelivered]).complete
    assert not run_outcome(jobs=[job_outcome(finished=None)]).complete
    assert not dataclasses.replace(run_outcome(), timed_out=True).complete


@pytest.mark.parametrize("content", ["{}", '{"served": null, "jobs": [{}]}', "[1]", "no JSON"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        RunOutcome.read(tmp_path / "run.json")
