"""What the kernel's scheduler is asked for a training process: slices, and to give way where others are in front.

Many processes that share few cores alike lose work to switching: each finds its caches emptied by the others. With
longer slices they lose less. Whoever has asked for nothing (an inference server, an application) has short ones, and
interrupts a longer one when it wakes up. With slices of 100 ms it at times does not for seconds (Linux 6.18).

Weights say who gets how much, and not where: with weights alone, a process that comes to the front waits a tenth of a
second until the kernel moves it to a core where nobody else in front is, and those behind keep four times their share.
A core on which only those compute that give way (``SCHED_IDLE``) counts as free. What they have by weight they keep:
weights of control groups compare before this does.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

_log = logging.getLogger(__name__)

LONGEST_SECONDS: Final = 0.1
"""The kernel grants no more."""

# Python has no calls for it, and neither has the C library of most machines: to set attributes, and to get them.
_NUMBERS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
# linux/sched/types.h, struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
_FORM: Final = struct.Struct("IIQiIQQQ")
# What starts meanwhile is begun by a thread that has the old attributes, or the new ones already.
_MOST_LOOKS: Final = 5
_SYS_NICE: Final = 23


@dataclass(frozen=True, slots=True)
class _Attributes:
    """What is kept of a thread's attributes."""

    policy: int  # os.SCHED_OTHER and the like
    flags: int  # whether children begin anew, above all
    niceness: int  # as os.getpriority has it
    slice_nanoseconds: int  # how long it asks to compute at a time; 0 for the kernel's own choice


def set_time_slice(pid: int, seconds: float) -> bool:
    """Ask for slices of ``seconds`` for a process, what it has started, and whatever they start from now on.

    Args:
        pid: The process, as this machine numbers it.
        seconds: At most :data:`LONGEST_SECONDS`; 0 asks for nothing.

    Returns:
        Whether the kernel took it. One before Linux 6.12 takes it and goes on as before.
    """
    if seconds <= 0:
        return False
    nanoseconds = round(min(seconds, LONGEST_SECONDS) * 1e9)
    return _change(lambda: family(pid), lambda old: replace(old, slice_nanoseconds=nanoseconds))


def set_giving_way(pids: Callable[[], Iterable[int]], *, gives_way: bool) -> bool:
    """Have processes give way to all that do not, or no longer, with what they start from now on.

    Args:
        pids: Gives the processes that live now, as this machine numbers them; looked at until no new ones are found.
        gives_way: Whether they do. To take it back needs :func:`may_take_back`.

    Returns:
        Whether the kernel took it for any.
    """
    policy = os.SCHED_IDLE if gives_way else os.SCHED_OTHER
    return _change(pids, lambda old: replace(old, policy=policy))


def may_take_back(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process may end that another one gives way, which the kernel holds to be a privilege."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _SYS_NICE & 1)
    return False


def family(pid: int) -> list[int]:
    """A process and those that it has started, as this machine numbers them; none when it has ended."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _change(pids: Callable[[], Iterable[int]], changed: Callable[[_Attributes], _Attributes]) -> bool:
    """Give every thread its changed attributes; whether any has them."""
    done: set[int] = set()
    taken = False
    for _ in range(_MOST_LOOKS):
        new = [thread for pid in pids() for thread in _threads(pid) if thread not in done]
        if not new:
            break
        done.update(new)
        for thread in new:
            try:
                _set(thread, changed(_get(thread)))
            except ProcessLookupError:
                continue
            except OSError as error:
                _log.info("thread %d stays as the kernel schedules it: %s", thread, error)
            else:
                taken = True
    return taken


def _get(thread: int) -> _Attributes:
    buffer = ctypes.create_string_buffer(_FORM.size)
    _call(1, thread, buffer, _FORM.size, 0)
    _, policy, flags, niceness, _, runtime, _, _ = _FORM.unpack(buffer.raw)
    return _Attributes(policy, flags, niceness, runtime)


def _set(thread: int, wanted: _Attributes) -> None:
    slices = (wanted.slice_nanoseconds, 0, 0)
    _call(0, thread, _FORM.pack(_FORM.size, wanted.policy, wanted.flags, wanted.niceness, 0, *slices), 0)


def _call(which: int, *arguments: object) -> None:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"nobody has looked up how a {platform.machine()} is asked")
    if ctypes.CDLL(None, use_errno=True).syscall(numbers[which], *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _threads(pid: int) -> Iterator[int]:
    try:
        yield from map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names are wanted
    except (FileNotFoundError, ProcessLookupError):
        return
