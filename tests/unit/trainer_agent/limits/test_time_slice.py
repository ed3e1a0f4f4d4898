"""Time slices, asked of the real kernel for a real process."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tiercel.trainer_agent.limits.time_slice import LONGEST_SECONDS, set_time_slice

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or tuple(map(int, platform.release().split(".")[:2])) < (6, 12),
    reason="the kernel knows no slices of one's own, or the number of the call is another one",
)

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
