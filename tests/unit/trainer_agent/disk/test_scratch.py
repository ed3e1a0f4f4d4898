"""Scratch folders, and what a script may leave in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.errors import RunFailedError


@pytest.fixture
def folders(tmp_path: Path) -> ScratchFolders:
    """Those of a node."""
    return ScratchFolders(tmp_path / "scratch")


def test_it_is_empty_at_first_and_gone_at_the_end(folders: ScratchFolders) -> None:
    folder = folders.make("job-1", None)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x").write_text("x")
    assert list(folders.make("job-1", None).iterdir()) == []
    (folder / "x").write_text("x")
    folders.remove("job-1")
    folders.remove("job-1")
    assert list(folder.parent.iterdir()) == []


def test_what_a_script_leaves_to_stay_goes_as_well(folders: ScratchFolders, tmp_path: Path) -> None:
    """Links out of it, folders closed to everybody, pipes, and folders in folders beyond what may call itself."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = folders.make("job-1", None)
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    (folder / "closed" / "closed").mkdir(parents=True)
    (folder / "closed" / "closed" / "x").write_text("x")
    (folder / "closed" / "closed").chmod(0)
    (folder / "closed").chmod(0)
    start = Path.cwd()
    try:
        os.chdir(folder)
        for _ in range(1200):
            Path("dd").mkdir()
            os.chdir("dd")
    finally:
        os.chdir(start)
    folder.chmod(0o500)
    folders.remove("job-1")
    assert list(folder.parent.iterdir()) == []
    assert (outside / "kept").read_text() == "kept"


def test_what_an_earlier_life_left_goes_but_for_the_runs_that_live(folders: ScratchFolders) -> None:
    folders.remove_others(())
    for run_id in ("job-1", "job-2"):
        folders.make(run_id, None)
    folders.remove_others({"job-2"})
    assert [path.name for path in folders.path("").iterdir()] == ["job-2"]


def test_a_folder_that_cannot_be_made_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file")
    with pytest.raises(RunFailedError, match="scratch folder of the run cannot be made"):
        ScratchFolders(tmp_path / "scratch").make("job-1", None)
