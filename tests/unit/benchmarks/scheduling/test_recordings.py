from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.outcome import Point
from benchmarks.scheduling.record import recording_of, runs_to_record
from benchmarks.scheduling.recordings import FOLDER, Recording, RecordingError, Recordings, remember
from benchmarks.scheduling.schedules import TRAINING_SEEDS, Schedule, ScheduledJob
from tests.support.scheduling_runs import job_outcome, recording
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.run_records import workload_of


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = recording()
    assert Recording.read(made.write(tmp_path)) == made
    assert Recordings.read(tmp_path).get("cnn-small", 0) == made


def test_work_to_a_tier_counts_from_the_start() -> None:
    assert recording().works() == (3.0, 4.0)
    falling = Recording("vae-small", 0, 1.0, 9.0, 9.0, (126.0, 113.7), ((2.0, 200.0), (3.0, 120.0), (4.0, 119.0)))
    assert falling.works() == (3.0, math.inf)


def test_what_was_recorded_with_other_targets_is_no_recording_of_the_kind(tmp_path: Path) -> None:
    dataclasses.replace(recording(), targets=(0.1, 0.2)).write(tmp_path)
    with pytest.raises(RecordingError, match=r"benchmarks\.scheduling record"):
        Recordings.read(tmp_path).works("cnn-small", 0)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"kind": "cnn-small"}')
    with pytest.raises(RecordingError, match=r"x\.json"):
        Recordings.read(tmp_path)


async def test_a_broker_remembers_runs_with_other_seeds_only(tmp_path: Path) -> None:
    known = Recordings({("cnn-small", seed): recording(training_seed=seed) for seed in range(TRAINING_SEEDS)})
    schedule = Schedule("small", 1, (ScheduledJob("a", "cnn-small", 1, 0.0),))
    await remember(known, schedule, "default", tmp_path / "broker.sqlite")
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        records = await store.load_run_records()
    assert {record.job_id for record in records} == {"earlier-cnn-small-0", "earlier-cnn-small-2"}
    wanted = workload_of("default", KINDS["cnn-small"].spec("a", 1, "docker"))
    assert {record.workload for record in records} == {wanted}
    assert records[0].curve == recording().curve


def test_a_recording_is_made_of_a_run_s_reports() -> None:
    targets = KINDS["cnn-small"].targets
    points = (Point(3, 0.1, 2.0), Point(4, 0.5, 2.5), Point(4, 0.6, 2.5), Point(5, targets[1], 3.5))
    outcome = dataclasses.replace(job_outcome(finished=7.0, cpu=4.0), points=points)
    made = recording_of(outcome, started_seconds=1.0)
    assert made.curve == ((2.0, 0.1), (2.5, 0.5), (2.501, 0.6), (3.5, targets[1]))
    assert made.works() == (3.5, 3.5)
    # The first report comes after start-up and one report's worth of work, which is 0.5 CPU seconds in the median.
    assert made.startup_cpu_seconds == pytest.approx(1.5)
    assert (made.cpu_seconds, made.seconds) == (4.0, 6.0)


def test_a_run_without_an_end_is_no_recording() -> None:
    with pytest.raises(RecordingError, match="running"):
        recording_of(job_outcome(finished=None), 0.0)


def test_every_kind_is_recorded_with_every_seed() -> None:
    runs = runs_to_record(("cnn-small", "vae-wide"))
    assert {(run.kind, run.training_seed) for run in runs} == {
        (kind, seed) for kind in ("cnn-small", "vae-wide") for seed in range(TRAINING_SEEDS)
    }


def test_the_committed_recordings_are_whole_and_every_run_got_to_its_tiers() -> None:
    recordings = Recordings.read(FOLDER)
    for run in runs_to_record():
        first, second = recordings.works(run.kind, run.training_seed)
        made = recordings.get(run.kind, run.training_seed)
        assert made.startup_cpu_seconds < first < second < math.inf
        assert second <= made.cpu_seconds
