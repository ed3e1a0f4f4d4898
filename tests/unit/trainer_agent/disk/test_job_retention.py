from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.disk.job_retention import EndedJobs, Retention, to_remove

HOUR = 3600.0
NOW = 1000 * HOUR


def test_those_that_ended_first_go_when_there_are_too_many() -> None:
    ended = {"a": NOW - 3 * HOUR, "b": NOW - 2 * HOUR, "c": NOW - 1 * HOUR}
    assert to_remove(ended, NOW, Retention(jobs=3)) == []
    assert to_remove(ended, NOW, Retention(jobs=1)) == ["a", "b"]
    assert to_remove(ended, NOW, Retention(jobs=0)) == ["a", "b", "c"]


def test_what_is_too_old_goes_however_few_there_are() -> None:
    ended = {"a": NOW - 3 * HOUR, "b": NOW - 2 * HOUR}
    assert to_remove(ended, NOW, Retention(seconds=2.5 * HOUR)) == ["a"]


def test_nothing_goes_in_the_first_ten_minutes() -> None:
    assert to_remove({"a": NOW - 599.0}, NOW, Retention(jobs=0, seconds=0.0)) == []
    assert to_remove({"a": NOW - 600.0}, NOW, Retention(jobs=0, seconds=0.0)) == ["a"]


class Folders:
    """Job folders with a checkpoint each, and who removes them."""

    def __init__(self, base: Path) -> None:
        self.jobs, self.notes = base / "jobs", base / "ended-jobs"
        for name in ("over", "active"):
            (self.jobs / name / "checkpoints").mkdir(parents=True)
            (self.jobs / name / "checkpoints" / "last.pt").write_bytes(b"weights")
        self.retention = EndedJobs(self.jobs, self.notes, Retention(jobs=0))

    def age(self, job_id: str) -> None:
        """Let it have ended long ago."""
        os.utime(self.notes / job_id, (NOW - HOUR, NOW - HOUR))

    def left(self) -> set[str]:
        self.retention.remove(NOW)
        return {folder.name for folder in self.jobs.iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_only_what_is_known_to_be_over_is_removed(folders: Folders) -> None:
    assert folders.left() == {"over", "active"}
    folders.retention.note_ended("over")
    folders.age("over")
    assert folders.left() == {"active"}
    assert list(folders.notes.iterdir()) == []
    assert (folders.jobs / "active" / "checkpoints" / "last.pt").read_bytes() == b"weights"


def test_what_is_noted_outlives_the_agent(folders: Folders) -> None:
    folders.retention.note_ended("over")
    folders.age("over")
    folders.retention = EndedJobs(folders.jobs, folders.notes, Retention(jobs=0))
    assert folders.left() == {"active"}


def test_a_job_that_begins_again_is_not_over(folders: Folders) -> None:
    folders.retention.note_ended("over")
    folders.age("over")
    folders.retention.note_begun("over")
    assert folders.left() == {"over", "active"}


def test_a_folder_that_is_a_link_loses_the_link_only(folders: Folders, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (folders.jobs / "link").symlink_to(target)
    folders.retention.note_ended("link")
    folders.age("link")
    assert folders.left() == {"over", "active"}
    assert target.is_dir()


@pytest.mark.parametrize("name", ["../active", ".", "", "a/b"])
def test_a_name_that_is_a_path_is_not_noted(folders: Folders, name: str) -> None:
    folders.retention.note_ended(name)
    folders.retention.note_begun(name)
    assert list(folders.notes.iterdir()) == []


def test_what_cannot_be_removed_is_said_once_and_stays_noted(
    folders: Folders, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("tiercel.trainer_agent.disk.job_retention.remove_anything", refuse)
    folders.retention.note_ended("over")
    folders.age("over")
    assert folders.left() == folders.left() == {"over", "active"}
    assert [record.getMessage() for record in caplog.records] == [
        "the folder of job over, which is over, cannot be removed: not yours"
    ]
    assert [note.name for note in folders.notes.iterdir()] == ["over"]
