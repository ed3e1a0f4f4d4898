from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.live_run import LiveSettings, environment_of, errors_in
from benchmarks.scheduling.recordings import RecordingError, Recordings
from benchmarks.scheduling.schedules import Schedule, ScheduledJob
from tests.support.scheduling_runs import recording

SCHEDULE = Schedule("small", 0, (ScheduledJob("a", "cnn-small", 0, 0.0),))


def settings_of(tmp_path: Path, known: Recordings) -> LiveSettings:
    return LiveSettings(tmp_path, "process", 60.0, known)


def test_an_arm_is_made_of_options_and_slices(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, Recordings({}))
    fair, flowcon = (environment_of(ARMS[name], SCHEDULE, settings) for name in ("fair", "flowcon-literal"))
    assert fair == {"TIERCEL_POLICY_OPTIONS": "{}", "TIERCEL_AGENT_TIME_SLICE_SECONDS": "0.0"}
    assert json.loads(flowcon["TIERCEL_POLICY_OPTIONS"]) == dict(ARMS["flowcon-literal"].options)
    assert flowcon["TIERCEL_AGENT_TIME_SLICE_SECONDS"] == "0.1"


def test_the_oracle_is_told_the_works_of_the_very_runs(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, Recordings({("cnn-small", 0): recording()}))
    options = json.loads(environment_of(ARMS["srpt-oracle"], SCHEDULE, settings)["TIERCEL_POLICY_OPTIONS"])
    assert options == {"works": "a:3/4"}
    with pytest.raises(RecordingError, match="cnn-small"):
        environment_of(ARMS["srpt-oracle"], SCHEDULE, settings_of(tmp_path, Recordings({})))


def test_errors_of_the_broker_are_counted() -> None:
    log = (
        "2026-01-01 00:00:00,000 INFO tiercel.broker: all is well\n"
        "2026-01-01 00:00:01,000 ERROR tiercel.broker.actors.scheduler: The plan of policy x is not carried out: y\n"
        "2026-01-01 00:00:02,000 WARNING tiercel.broker: ERRORS may follow\n"
    )
    assert errors_in(log) == 1
