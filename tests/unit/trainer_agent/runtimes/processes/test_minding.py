"""Output waits on disk for whoever reads it, within bounds; nobody is taken for a script that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tiercel.trainer_agent.runtimes.processes import minder
from tiercel.trainer_agent.runtimes.processes.identity import ProcessIdentity, identity_of
from tiercel.trainer_agent.runtimes.processes.minder import Spool
from tiercel.trainer_agent.runtimes.processes.minding import Minded, SpooledOutput, end_leftovers

CALLED_OFF = """
import sys
from pathlib import Path
from tiercel.trainer_agent.runtimes.processes import minder
from tiercel.trainer_agent.runtimes.processes.minding import end_leftovers
write = minder._write_processes
def write_late(folder, *processes):
    end_leftovers(folder)
    write(folder, *processes)
minder._write_processes = write_late
minder.main(sys.argv[1:])
"""
LINE = b"0123456789abcdef\n"


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minder, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(minder, "MOST_SEGMENTS", 4)


def everything(output: SpooledOutput) -> bytes:
    return b"".join(iter(output.take, b""))


def test_a_reader_gets_all_that_is_written_and_what_it_has_read_is_removed(tmp_path: Path) -> None:
    spool, output, seen = Spool(tmp_path), SpooledOutput(tmp_path, 0), b""
    for _ in range(100):
        spool.append(LINE)
        seen += everything(output)
        assert len(list(tmp_path.iterdir())) <= 2
    assert seen == LINE * 100


def test_a_later_reader_goes_on_at_the_byte_where_the_one_before_died(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for _ in range(20):
        spool.append(LINE)
    first = SpooledOutput(tmp_path, 0)
    safe = b"".join(first.take() for _ in range(2))
    first.take()  # it dies before it has kept this
    assert safe + everything(SpooledOutput(tmp_path, len(safe))) == LINE * 20


def test_output_that_nobody_takes_is_bounded_and_what_is_lost_is_said(tmp_path: Path) -> None:
    spool = Spool(tmp_path, patience_seconds=0.0)
    for _ in range(1000):
        spool.append(LINE)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 400
    output = SpooledOutput(tmp_path, 0)
    kept = everything(output)
    assert kept == (LINE * 1000)[:400]
    spool.append(b"and on\n")
    notice = b"[tiercel: %d bytes of output found no room while nobody took it, and are lost]" % (17 * 1000 - 400)
    assert everything(output) == b"\n" + notice + b"\nand on\n"


def leave(folder: Path, minding: ProcessIdentity, script: ProcessIdentity) -> Path:
    """What a minder leaves behind."""
    folder.mkdir()
    known = [[each.boot_id, each.pid, each.start_ticks] for each in (minding, script)]
    (folder / minder.PROCESSES).write_text(json.dumps(known))
    return folder


async def test_a_process_that_got_the_number_of_a_script_is_neither_adopted_nor_killed(tmp_path: Path) -> None:
    """The number is that of this very process: whoever kills it ends the test."""
    mine = identity_of(os.getpid())
    assert mine is not None
    for count, wrong in enumerate((replace(mine, start_ticks=mine.start_ticks - 1), replace(mine, boot_id="before"))):
        folder = leave(tmp_path / f"job-{count}", wrong, wrong)
        assert Minded.find(folder) is None
        end_leftovers(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_was_called_off_lets_nothing_begin(tmp_path: Path) -> None:
    """The agent died when the minder had not begun, and its next life took the folder away."""
    folder, mark = tmp_path / "job-1", tmp_path / "mark"
    folder.mkdir()
    command = [sys.executable, "-c", CALLED_OFF, str(folder), str(tmp_path), "/bin/sh", "-c", f"echo > {mark}"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 1
    assert "No such file or directory" in process.stderr
    assert list(tmp_path.iterdir()) == []
