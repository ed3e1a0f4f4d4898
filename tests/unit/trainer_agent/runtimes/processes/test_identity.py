"""A process is told apart from another that got its number."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tiercel.trainer_agent.runtimes.processes.identity import identity_of

FIELDS_BEFORE_START = "S 1 7 7 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0"


def machine(folder: Path, *, boot_id: str, start_ticks: int, name: str = "python") -> Path:
    """What the kernel says on a machine with one process, number 7."""
    boot = folder / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text(f"{boot_id}\n")
    (folder / "7").mkdir(exist_ok=True)
    (folder / "7" / "stat").write_text(f"7 ({name}) {FIELDS_BEFORE_START} {start_ticks} 1000 200\n")
    return folder


def test_a_process_is_recognised_by_boot_and_start_ticks(tmp_path: Path) -> None:
    proc = machine(tmp_path, boot_id="first", start_ticks=500)
    known = identity_of(7, proc)
    assert known is not None
    assert (known.boot_id, known.pid, known.start_ticks) == ("first", 7, 500)
    assert known.is_alive(proc)
    machine(tmp_path, boot_id="first", start_ticks=501)  # the number went to another process
    assert not known.is_alive(proc)
    machine(tmp_path, boot_id="second", start_ticks=500)  # the machine was started again
    assert not known.is_alive(proc)
    assert identity_of(8, proc) is None


def test_the_name_of_a_command_may_look_like_more_fields(tmp_path: Path) -> None:
    known = identity_of(7, machine(tmp_path, boot_id="b", start_ticks=500, name="a) S 1 (b"))
    assert known is not None
    assert known.start_ticks == 500


def test_a_process_of_this_machine() -> None:
    mine = identity_of(os.getpid())
    assert mine is not None
    assert mine.is_alive()
    assert not replace(mine, start_ticks=mine.start_ticks + 1).is_alive()
