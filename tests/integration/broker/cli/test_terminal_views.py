"""What people see on a small and on a large terminal; the views are kept in build/cli-pictures, to be looked at."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing import jobs_service as wire
from testing.jobs_service import TOKEN, Script
from testing.needs import need
from testing.terminals import Terminal, terminal
from tiercel.v1 import jobs_pb2

PICTURES = Path(__file__).parents[4] / "build" / "cli-pictures"
SIZES = [(80, 24), (200, 50)]
RUNNING, WAITING = jobs_pb2.JOB_STATE_RUNNING, jobs_pb2.JOB_STATE_PENDING


@pytest.fixture(autouse=True)
def busy(script: Script) -> Script:
    """Three nodes, thirty jobs and an endpoint."""
    need(shutil.which("tmux"), "tmux", "tmux")
    for number in range(3):
        state = jobs_pb2.NODE_STATE_ONLINE if number else jobs_pb2.NODE_STATE_OFFLINE
        script.nodes.append(
            jobs_pb2.Node(
                id=f"node-{number}",
                state=state,
                cpu_cores=8,
                memory_bytes=2**35,
                runtimes=["process", "docker"],
                limits="cgroup-v2",
                serving_http="127.0.0.1:8080",
            )
        )
    for number in range(30):
        job_id = f"{number:02d}-0d5e8a91c4f7"
        script.jobs[job_id] = wire.job(job_id, WAITING if number % 3 == 2 else RUNNING, best=0.9312, delivered=1)
    load = jobs_pb2.EndpointLoad(requests_per_second=123.4, cpu_cores=0.75)
    script.endpoints.append(jobs_pb2.Endpoint(name="digits", live_version=1, node_id="node-1", load=load))
    return script


def shown(address: str, size: tuple[int, int], *words: str) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "tiercel", *words, "--broker", address]
    with terminal(*size, command, {"TIERCEL_TOKEN": TOKEN}) as opened:
        yield opened


def keep(name: str, size: tuple[int, int], text: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}-{size[0]}x{size[1]}.txt").write_text(f"{text}\n")


@pytest.mark.parametrize("size", SIZES)
def test_top_fits_sorts_filters_and_leaves_the_terminal_as_it_was(address: str, size: tuple[int, int]) -> None:
    for view in shown(address, size, "top"):
        text = view.wait("q quit")
        keep("top", size, text)
        lines = text.splitlines()
        assert len(lines) <= size[1]
        assert "nodes online: 2 of 3" in lines[0]
        assert "20 running, 10 pending" in lines[0]
        assert {"node-2", "digits"} <= set(text.split())
        assert ("more" in text) is (size == (80, 24))
        for key, told in (("s", "sort: share"), ("f", "show: running"), ("f", "show: pending")):
            view.press(key)
            text = view.wait(told)
        assert "pending" in text
        assert " running" not in text.partition("\n")[2].partition("show:")[0]
        view.press("q")
        assert "END 0" in view.wait("END 0")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("words", [("ls",), ("nodes",), ("endpoints",)])
def test_a_row_of_a_listing_is_a_line(address: str, size: tuple[int, int], words: tuple[str, ...]) -> None:
    for view in shown(address, size, *words):
        text = view.wait("END 0")
        keep("-".join(words), size, text)
        rows = [line for line in text.splitlines() if line.startswith(("29-0d", "node-", "digits"))]
        assert len(rows) == {"ls": 1, "nodes": 3, "endpoints": 1}[words[0]]
