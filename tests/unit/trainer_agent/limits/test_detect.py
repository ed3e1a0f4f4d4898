from __future__ import annotations

from pathlib import Path

from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.detect import detect


def test_without_control_groups_trainers_are_asked_to_pace_themselves(tmp_path: Path) -> None:
    limits = detect("detect", 4.0, root=tmp_path)
    assert limits.name == "cooperative"
    assert limits.container_parent is None
    limits.protect(1)  # nothing to do, nothing to fail
    run = limits.open_run("a-1", cpu_cores=1.0, memory_bytes=0, share=CpuShare(1.0))
    assert run.entry_files == ()


def test_folders_that_only_look_like_control_groups_are_not_taken_for_some(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")  # nothing appears in folders made here
    for controller in ("cpu", "cpuacct"):
        (tmp_path / controller).mkdir()
    assert detect("detect", 4.0, root=tmp_path).name == "cooperative"
