"""Data sets that are there, and disks that do not answer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tiercel.core.declared_data import FILE, DataDeclarations, DeclaredData
from tiercel.trainer_agent.data import offered
from tiercel.trainer_agent.data.offered import OfferedData
from tiercel.trainer_agent.errors import DataGoneError


async def test_a_disk_that_hangs_holds_up_one_thread_and_a_run_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table").write_text("1,2")
    DataDeclarations(tmp_path / "agent").add("table", tmp_path / "table")
    data = OfferedData(tmp_path / "agent")
    await data.look()
    hangs = threading.Event()
    monkeypatch.setattr(DeclaredData, "is_there", property(lambda _: hangs.wait(30)))
    monkeypatch.setattr(offered, "_ANSWER_SECONDS", 0.05)
    for _ in range(3):
        with pytest.raises(DataGoneError, match="does not answer"):
            await data.mounts(["table"])
    assert [thread.name for thread in threading.enumerate()].count("offered data") == 1
    assert [each.name for each in data.told()] == ["table"]
    hangs.set()
    monkeypatch.setattr(offered, "_ANSWER_SECONDS", 10.0)
    (mount,) = await data.mounts(["table"])
    assert (mount.path, mount.is_folder) == (tmp_path / "table", False)


async def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "table").write_text("1,2")
    DataDeclarations(tmp_path / "agent").add("table", tmp_path / "table")
    data = OfferedData(tmp_path / "agent")
    await data.look()
    (tmp_path / "agent" / FILE).write_text("{")
    for _ in range(3):
        await data.look()
    assert [each.name for each in data.told()] == ["table"]
    assert len(caplog.records) == 1, "said once"
