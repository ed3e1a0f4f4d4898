"""What brings folders into containers does so in a container that it was told of, and in nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from testing.needs import need
from testing.until import until
from tiercel.trainer_agent.runtimes.containers import mounting

Waits = Callable[..., Awaitable[tuple[int, str]]]
ELSEWHERE = "the engine's containers are not below this machine's own root"


@pytest.fixture(autouse=True)
def _as_root() -> None:
    need(os.geteuid() == 0, "root, who may mount")


@pytest.fixture
async def waits() -> AsyncIterator[Waits]:
    """A process with namespaces of its own, as a container's is; its pid, and what its control groups say."""
    started = []

    async def start(*namespaces: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec("unshare", *namespaces, "sleep", "600")
        started.append(process)
        await until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        return process.pid, Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[0]

    yield start
    for process in started:
        process.kill()
        await process.wait()


def bring(pid: int, container: str, *mounts: dict[str, Any]) -> tuple[int, str]:
    """Exit code, and what it says."""
    order = json.dumps({"pid": pid, "container": container, "mounts": mounts}).encode()
    command = [sys.executable, "-I", "-S", mounting.__file__]
    done = subprocess.run(command, input=order, capture_output=True, check=False, timeout=60)
    assert not done.stdout
    return done.returncode, done.stderr.decode()


async def test_it_finds_out_whether_it_could(waits: Waits) -> None:
    assert bring(*await waits("--mount")) == (0, "")


async def test_it_refuses_whatever_is_no_container_of_this_machine(waits: Waits) -> None:
    pid, container = await waits("--mount")
    assert bring(pid, f"{container}x") == (1, ELSEWHERE)
    pid, container = await waits("--mount", "--user")
    assert bring(pid, container) == (1, ELSEWHERE)
    assert bring(os.getpid(), Path("/proc/self/cgroup").read_text().splitlines()[0]) == (1, ELSEWHERE)
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    assert bring(process.pid, container) == (mounting.GONE, "")


async def test_it_mounts_nowhere_but_in_a_place_that_is_there_for_it(waits: Waits, tmp_path: Path) -> None:
    pid, container = await waits("--mount")
    (tmp_path / "link").symlink_to("/dev/shm")
    for place, reason in (
        (tmp_path, "it has no place for the run's folders"),
        (tmp_path / "link", "Not a directory"),
        (tmp_path / "none", "No such file or directory"),
    ):
        mount = {"source": str(tmp_path), "place": str(place), "below": [], "read_only": False}
        assert bring(pid, container, mount) == (1, reason)
    assert str(tmp_path) not in Path(f"/proc/{pid}/mountinfo").read_text()


async def test_no_link_leads_it_to_what_it_was_not_told_of(waits: Waits, tmp_path: Path) -> None:
    pid, container = await waits("--mount")
    (tmp_path / "link").symlink_to("/etc")
    mount = {"source": str(tmp_path / "link"), "place": "/dev/shm", "below": ["x"], "read_only": True}
    assert bring(pid, container, mount) == (1, "what is to be brought in is a link")
    assert "/etc" not in Path(f"/proc/{pid}/mountinfo").read_text()
    assert not Path("/dev/shm/x").exists()


async def test_it_says_what_is_not_there(waits: Waits, tmp_path: Path) -> None:
    pid, container = await waits("--mount")
    mount = {"source": str(tmp_path / "none"), "place": "/dev/shm", "below": [], "read_only": False}
    assert bring(pid, container, mount) == (1, "open_tree: No such file or directory")
