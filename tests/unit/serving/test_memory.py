from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tiercel.serving import memory

TUNABLES = "GLIBC_TUNABLES"

FREE_AND_LOOK = """
import resource, sys
from tiercel.serving import memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

if sys.argv[1] == "settled":
    memory.settle()
bytearray(20 * 1024**2)  # without being told otherwise, glibc takes blocks up to this size from the heap from now on
blocks = [bytearray(b"x" * 3 * 1024**2) for _ in range(20)]
stays = bytearray(b"x" * 100_000)  # what lies behind them in the heap keeps them there
full = resident()
blocks.clear()
print(full - resident())
"""


def freed(mode: str) -> int:
    """Bytes that a process gave back when it freed 60 MB in blocks of 3."""
    environment = {name: value for name, value in os.environ.items() if name != TUNABLES}
    command = [sys.executable, "-c", FREE_AND_LOOK, mode]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment).stdout)


def test_large_blocks_go_back_to_the_system_when_they_are_freed() -> None:
    assert freed("settled") >= 55 * 1024**2 > freed("as it comes")


def test_huge_pages_are_asked_for_once_and_beside_what_else_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TUNABLES, raising=False)
    assert memory.environment_with_huge_pages() == {TUNABLES: "glibc.malloc.hugetlb=1"}
    monkeypatch.setenv(TUNABLES, "glibc.malloc.arena_max=2")
    assert memory.environment_with_huge_pages() == {TUNABLES: "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"}
    monkeypatch.setenv(TUNABLES, "glibc.malloc.hugetlb=0")
    assert memory.environment_with_huge_pages() == {}, "whoever decided about it is left alone"


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TUNABLES, raising=False)
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert memory.environment_with_huge_pages() == {}


def test_a_process_begins_anew_with_its_arguments_and_huge_pages() -> None:
    code = (
        "import os, sys; from tiercel.serving import memory; first = os.environ.get('GLIBC_TUNABLES', '');"
        "memory.begin_with_huge_pages(); print(os.environ['GLIBC_TUNABLES'], sys.argv[1:])"
    )
    environment = {name: value for name, value in os.environ.items() if name != TUNABLES}
    command = [sys.executable, "-c", code, "one", "two"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment)
    assert done.stdout == b"glibc.malloc.hugetlb=1 ['one', 'two']\n"
