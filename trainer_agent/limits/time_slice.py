"""How long a training process computes before the kernel looks who is next.

Many processes on few cores lose a tenth to a fifth of their work to switching: each finds its caches emptied by the
others. Training does not mind waiting a tenth of a second, so its processes ask for long slices. Whoever has asked for
nothing (an inference server, an application) has short ones, and interrupts a long one when it wakes up.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import struct
from typing import Final

import psutil

_log = logging.getLogger(__name__)

LONGEST_SECONDS: Final = 0.1
"""The kernel grants no more."""

# Python has no call for it, and neither has the C library of most machines.
_NUMBER: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
# linux/sched/types.h, struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES: Final = struct.Struct("IIQiIQQQ")


def set_time_slice(pid: int, seconds: float) -> bool:
    """Ask for slices of ``seconds`` for a process, what it has started, and whatever they start from now on.

    Args:
        pid: The process, as this machine numbers it.
        seconds: At most :data:`LONGEST_SECONDS`; 0 asks for nothing.

    Returns:
        Whether the kernel took it. One before Linux 6.12 takes it and goes on as before.
    """
    number = _NUMBER.get(platform.machine())
    if seconds <= 0 or number is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    nanoseconds = round(min(seconds, LONGEST_SECONDS) * 1e9)
    taken = False
    for thread, niceness in _threads(pid):
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, nanoseconds, 0, 0)
        if libc.syscall(number, thread, attributes, 0) == 0:
            taken = True
        else:
            _log.info("%d keeps the kernel's time slices: %s", thread, os.strerror(ctypes.get_errno()))
    return taken


def _threads(pid: int) -> list[tuple[int, int]]:
    """Each thread of a process and of those below it, with the niceness that the call would else reset."""
    threads: list[tuple[int, int]] = []
    try:
        leader = psutil.Process(pid)
        family = [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        return threads
    for process in family:
        try:
            threads += [(thread.id, process.nice()) for thread in process.threads()]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return threads
