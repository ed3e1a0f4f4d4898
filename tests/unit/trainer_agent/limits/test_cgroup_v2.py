"""cgroup v2 on a folder that looks like one: what is written where. That the kernel obeys is tested with v1."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiercel.trainer_agent.limits.cgroup_v2 import CgroupV2
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.limits.groups import LimitsUnavailableError, group_weights

GIBIBYTE = 1024**3


class FakeGroups:
    """Fills folders with the files that the kernel would."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name in (
            "cgroup.procs",
            "cgroup.subtree_control",
            "cpu.weight",
            "cpu.max",
            "memory.max",
            "memory.swap.max",
        ):
            (folder / name).touch()

    def remove(self, folder: Path) -> None:
        self.removed.append(folder.name)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    FakeGroups().make(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


@contextmanager
def sleeping_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for as long as the block lasts."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def make(root: Path, own: str = "/user.slice/session.scope", weight: float = 1.0) -> CgroupV2:
    return CgroupV2("node", group_weights(2.0, weight), {"": own}, root, FakeGroups())


@pytest.mark.parametrize(
    ("weight", "of_runs_and_control"),
    [
        (1.0, [200, 4000]),  # training competes like one ordinary process a core, and never with what answers
        (0.1, [20, 400]),
        (2.5, [500, 10_000]),  # the most that the kernel takes
    ],
)
def test_groups_and_their_weights(root: Path, weight: float, of_runs_and_control: list[int]) -> None:
    limits = make(root, weight=weight)
    runs, control = root / "tiercel-node", root / "tiercel-node-control"
    assert (root / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (runs / "cgroup.subtree_control").read_text() == "+cpu +memory"
    # An ordinary group has 100.
    assert [int((folder / "cpu.weight").read_text()) for folder in (runs, control)] == of_runs_and_control
    assert limits.container_parent == "/tiercel-node"
    assert limits.paces() == {}


def test_a_run(root: Path) -> None:
    run = make(root).open_run("job-1", cpu_cores=2.0, memory_bytes=GIBIBYTE, share=CpuShare(0.25, 0.5))
    folder = root / "tiercel-node" / "run-job-1"
    assert (folder / "cpu.weight").read_text() == "2500"
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert (folder / "memory.max").read_text() == str(GIBIBYTE)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert run.entry_files == (folder / "cgroup.procs",)
    run.apply(CpuShare(1.0))
    assert (folder / "cpu.weight").read_text() == "10000"
    assert (folder / "cpu.max").read_text() == "max 100000"


def test_templates_have_a_group_that_gives_way_and_goes_with_an_earlier_life(root: Path) -> None:
    limits = make(root)
    templates = limits.open_templates(GIBIBYTE)
    folder = root / "tiercel-node" / "run-.templates"
    assert templates.entry_files == (folder / "cgroup.procs",)
    assert (folder / "cpu.weight").read_text() == "5000"
    assert (folder / "memory.max").read_text() == str(GIBIBYTE)
    assert limits.beside_agent == (root / "tiercel-node-control" / "cgroup.procs",)
    make(root).remove_leftovers({"job-1"})
    assert not folder.exists()


def test_usage_never_falls_and_outlives_the_group(root: Path) -> None:
    run = make(root).open_run("job-1", cpu_cores=1.0, memory_bytes=0, share=CpuShare(1.0))
    folder = root / "tiercel-node" / "run-job-1"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n")
    (folder / "memory.current").write_text("4096\n")
    assert run.usage() == Usage(2.5, 4096)
    assert not run.ran_out_of_memory()
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
    assert run.ran_out_of_memory()
    run.close()
    assert not folder.exists()
    assert run.usage() == Usage(2.5, 0)


def test_protection_and_leaving(root: Path) -> None:
    limits = make(root)
    control = root / "tiercel-node-control" / "cgroup.procs"
    limits.protect(os.getpid())
    assert control.read_text() == str(os.getpid())
    limits.close()
    assert (root / "cgroup.procs").read_text() == str(os.getpid())
    assert not (root / "tiercel-node").exists()


def test_the_server_has_memory_of_its_own_and_the_weight_of_what_answers(root: Path) -> None:
    limits = make(root)
    serving = root / "tiercel-node-serving"
    assert limits.serving_entry(GIBIBYTE) == (serving / "cgroup.procs",)
    assert (serving / "memory.max").read_text() == str(GIBIBYTE)
    assert (serving / "cpu.weight").read_text() == "4000"
    (serving / "cgroup.procs").write_text(str(os.getpid()))
    limits.close()
    assert (root / "cgroup.procs").read_text() == str(os.getpid())
    assert not serving.exists()


def test_leftovers_are_killed_and_removed_except_for_runs_that_are_kept(root: Path) -> None:
    earlier = make(root)
    procs = {}
    for run_id in ("old-1", "kept-1"):
        earlier.open_run(run_id, cpu_cores=1.0, memory_bytes=0, share=CpuShare(0.25))
        procs[run_id] = root / "tiercel-node" / f"run-{run_id}" / "cgroup.procs"
    with sleeping_process() as old, sleeping_process() as kept:
        procs["old-1"].write_text(f"{old.pid}\n")
        procs["kept-1"].write_text(f"{kept.pid}\n")
        again = make(root)
        again.remove_leftovers({"kept-1"})
        assert old.wait(10) == -signal.SIGKILL
        assert kept.poll() is None
    assert [folder.name for folder in (root / "tiercel-node").glob("run-*")] == ["run-kept-1"]


def test_a_run_is_opened_again_as_it_was_left(root: Path) -> None:
    make(root).open_run("job-1", cpu_cores=1.0, memory_bytes=0, share=CpuShare(1.0)).apply(CpuShare(0.25, 0.5))
    folder = root / "tiercel-node" / "run-job-1"
    (folder / "cpu.stat").write_text("usage_usec 2500000\n")
    again = make(root)
    run = again.reopen_run("job-1", cpu_cores=1.0, share=CpuShare(1.0))
    assert run is not None
    assert ((folder / "cpu.weight").read_text(), (folder / "cpu.max").read_text()) == ("2500", "50000 100000")
    assert run.usage().cpu_seconds == 2.5
    assert again.reopen_run("job-2", cpu_cores=1.0, share=CpuShare(1.0)) is None


def test_only_the_own_group_is_delegated(root: Path) -> None:
    (root / "cgroup.controllers").write_text("memory\n")
    own = root / "user.slice"
    FakeGroups().make(own)
    (own / "cgroup.controllers").write_text("cpu\n")
    limits = make(root, "/user.slice/tiercel-node-control")  # started again inside of its own group
    assert (own / "cgroup.subtree_control").read_text() == "+cpu"
    assert limits.container_parent is None
    limits.open_run("job-1", cpu_cores=1.0, memory_bytes=GIBIBYTE, share=CpuShare(1.0))
    memory = own / "tiercel-node" / "run-job-1" / "memory.max"
    assert memory.read_text() == ""  # the controller is not there


def test_it_says_why_it_does_not_work(tmp_path: Path) -> None:
    with pytest.raises(LimitsUnavailableError, match="No such file"):
        make(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(LimitsUnavailableError, match="no cpu controller"):
        make(tmp_path)
