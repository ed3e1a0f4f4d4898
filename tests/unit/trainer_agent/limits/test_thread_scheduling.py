"""Time slices and giving way, asked of the real kernel for a real process."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.needs import need
from tiercel.trainer_agent.limits.thread_scheduling import (
    LONGEST_SECONDS,
    family,
    may_take_back,
    set_giving_way,
    set_time_slice,
)


@pytest.fixture(autouse=True)
def _kernel() -> None:
    known = platform.machine() == "x86_64" and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12)
    need(known, "Linux 6.12 or newer on x86_64, which lets a thread have slices of its own")


_SCHED_GETATTR = 315
# A child and a thread, as a training process has them once it is up.
_PROGRAM = """
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
threading.Thread(target=input, daemon=True).start()
print(child.pid, threading.enumerate()[1].native_id, flush=True)
child.wait()
"""


def slice_seconds(thread: int) -> float:
    """The slice that a thread has asked for, 0 for none."""
    buffer = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall(_SCHED_GETATTR, thread, buffer, 56, 0) == 0
    runtime: int = struct.unpack_from("IIQiIQQQ", buffer.raw)[5]
    return runtime / 1e9


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_with_its_threads_and_children_gets_them(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    child, thread = map(int, process.stdout.readline().split())
    os.setpriority(os.PRIO_PROCESS, process.pid, 3)
    try:
        assert set_time_slice(process.pid, 0.05)
        assert [slice_seconds(each) for each in (process.pid, thread, child)] == [0.05, 0.05, 0.05]
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 3
    finally:
        os.kill(child, 9)


def test_the_kernels_limit_is_kept(process: subprocess.Popen[bytes]) -> None:
    assert set_time_slice(process.pid, 7.0)
    assert slice_seconds(process.pid) == LONGEST_SECONDS


def test_nothing_asked_and_nobody_there(process: subprocess.Popen[bytes]) -> None:
    before = slice_seconds(process.pid)
    assert not set_time_slice(process.pid, 0.0)
    assert slice_seconds(process.pid) == before
    assert not set_time_slice(2**22 + 1, 0.05)


def test_who_gives_way_keeps_slice_and_niceness(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    child, thread = map(int, process.stdout.readline().split())
    os.setpriority(os.PRIO_PROCESS, process.pid, 3)
    try:
        set_time_slice(process.pid, 0.05)
        everybody = (process.pid, thread, child)
        assert set(family(process.pid)) == {process.pid, child}
        assert set_giving_way(lambda: family(process.pid), gives_way=True)
        assert [os.sched_getscheduler(each) for each in everybody] == [os.SCHED_IDLE] * 3
        assert [slice_seconds(each) for each in everybody] == [0.05] * 3
        if may_take_back():
            assert set_giving_way(lambda: [process.pid, child], gives_way=False)
            assert [os.sched_getscheduler(each) for each in everybody] == [os.SCHED_OTHER] * 3
            assert [slice_seconds(each) for each in everybody] == [0.05] * 3
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 3
    finally:
        os.kill(child, 9)


def test_a_process_that_was_started_while_others_were_asked_gives_way_too(process: subprocess.Popen[bytes]) -> None:
    """As a container's first process starts the script just then."""
    assert process.stdout is not None
    child = int(process.stdout.readline().split()[0])
    looks = iter([[process.pid], [process.pid, child]])
    try:
        assert set_giving_way(lambda: next(looks, [process.pid, child]), gives_way=True)
        assert os.sched_getscheduler(child) == os.SCHED_IDLE
    finally:
        os.kill(child, 9)


def test_nobody_there_to_give_way() -> None:
    assert family(2**22 + 1) == []
    assert not set_giving_way(lambda: [2**22 + 1], gives_way=True)


@pytest.mark.parametrize(
    ("capabilities", "may"), [("000001ffffffffff", True), ("0000000000800000", True), ("00000000a80425fb", False)]
)
def test_taking_back_needs_a_capability(tmp_path: Path, capabilities: str, may: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tagent\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n")
    assert may_take_back(status) is may


def test_a_kernel_that_says_nothing_of_capabilities(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tagent\n")
    assert not may_take_back(status)
