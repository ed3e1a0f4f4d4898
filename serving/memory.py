"""How this process uses memory, so that swapping a model of tens of megabytes costs requests nothing.

Freeing a session happens under Python's lock, and giving back memory of 4 KiB pages takes the kernel 8 ms for 48 MB.
So what is large is mapped by itself, in huge pages (0.9 ms), and goes back to the system when it is freed: no trim of
the heap, for which glibc would hold a lock that every request needs, and no heap that grows with each swap.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import resource
import sys
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_M_TRIM_THRESHOLD = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD = -3
# Larger ones are mapped by themselves. glibc would raise this to 32 MiB by and by, and keep what sessions free.
_MAPPED_BYTES = 1024**2
# Free bytes at the heap's end that are kept, so that requests do not move the end back and forth.
_KEPT_BYTES = 4 * 1024**2
_TUNABLES = "GLIBC_TUNABLES"
_HUGE_PAGES = "glibc.malloc.hugetlb=1"


def environment_with_huge_pages() -> dict[str, str]:
    """What glibc has to find in the environment of a process that is to use huge pages; empty with other C libraries.

    It is read when a process begins, and there is no other way to say it.
    """
    if platform.libc_ver()[0] != "glibc":
        return {}
    tunables = os.environ.get(_TUNABLES, "")
    if "glibc.malloc.hugetlb" in tunables:
        return {}
    return {_TUNABLES: f"{tunables}:{_HUGE_PAGES}" if tunables else _HUGE_PAGES}


def begin_with_huge_pages() -> None:
    """Begin this process anew with huge pages, unless it has them; it stays the same process. Call it first."""
    missing = environment_with_huge_pages()
    if missing:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)  # noqa: S606 - no shell


def settle() -> None:
    """Have large blocks mapped by themselves; call it once, before there are threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # other C libraries give large blocks back without being told
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def private_bytes() -> int:
    """Bytes of this process's own memory that can be written, used yet or not; what ``RLIMIT_DATA`` is about."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        pages = int(file.read().split()[5])
    return pages * resource.getpagesize()


def available_bytes() -> int:
    """Bytes of memory that this process may use at most: the machine's, or what its control group is limited to."""
    most = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    for limit in (_GROUPS / "memory.max", _GROUPS / "memory" / "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            most = min(most, int(limit.read_text("ascii")))
    return most


def stay_within(most_bytes: int) -> None:
    """Have allocations fail beyond so many bytes: one run then fails, where the kernel would end the whole process.

    Processes that are started from here on begin with the same limit, and may raise it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def spare_what_stays() -> None:
    """Leave what there is now, modules above all, out of all later looks for garbage, which stop every request."""
    gc.collect()
    gc.freeze()
