"""``make gpu-check`` as it is run, on the CPU: real training, pacing and serving; no figure of it matters here."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu_check import facts
from benchmarks.gpu_check.commands import main

pytestmark = pytest.mark.timeout(600)

WAIT_SECONDS = 500.0
"""Generous: it only decides how long a broken test takes."""


async def start(output: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.gpu_check", "--output", str(output), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(output: Path, *options: str) -> tuple[int, str, str]:
    process = await start(output, *options)
    async with asyncio.timeout(WAIT_SECONDS):
        told, errors = await process.communicate()
    return process.returncode or 0, told.decode(), errors.decode()


def rows_of(told: str) -> dict[str, Any]:
    return {row["what"]: row for row in json.loads(told)["rows"]}


async def test_on_a_cpu_training_is_paced_and_limited_for_real(tmp_path: Path) -> None:
    output = tmp_path / "gpu-check"
    checks = ("see", "pacing", "memory", "ranks")
    code, told, errors = await run(output, "--device", "cpu", "--quick", "--json", "--minutes", "8", "--only", *checks)
    rows = rows_of(told)
    assert {row["verdict"] for row in rows.values()} <= {"", "holds", "MISSED"}, told
    assert code == 0, errors
    assert {row["check"] for row in rows.values()} == set(checks)
    for name in ("share 0.5: error", "share 0.25: error", "neighbours at once, share 0.7: error"):
        assert rows[name]["value"] is not None
    assert 50 <= rows["memory held of its limit, asked for twice that"]["value"] <= 100
    assert "this job may hold 4,096 MiB" in rows["the error says what to do"]["note"]
    assert rows["different weights of two ranks that trained one model"]["value"] == 1
    document = json.loads((output / "gpu-check.json").read_text())
    assert document["name"] == "gpu-check"
    assert {bar["name"] for bar in document["bars"]} == {name for name, row in rows.items() if row["goal"]}
    figures = document["figures"]
    assert figures["not run"] == {}
    assert figures["pacing"]["share 0.25"]["steps_per_second"] < figures["pacing"]["share 1"]["steps_per_second"]


def test_without_an_accelerator_it_says_so_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(facts, "find", functools.cache(facts.find))  # what is found out costs an import of PyTorch
    if facts.find()["device"] is not None:
        pytest.skip("there is an accelerator")
    output = tmp_path / "gpu-check"
    for options, expected in (((), 0), (("--device", "cuda"), 2)):
        assert main(["--output", str(output), *options]) == expected
        told = capsys.readouterr().out
        assert told.startswith("GPU check: no accelerator\n")
        assert told.count("not run ") == 5
        assert not output.exists()


async def test_stopping_it_in_the_middle_leaves_nothing_running(tmp_path: Path) -> None:
    process = await start(tmp_path / "gpu-check", "--device", "cpu", "--only", "pacing")
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while b"share 1" not in (line := await process.stderr.readline()):
            assert line, "it ended early"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 2
        process.send_signal(signal.SIGTERM)
        told, errors = await process.communicate()
    assert process.returncode == 130
    assert b"stopped before its end" in told, "the table of what there is"
    assert b"nothing is left running" in errors
    gone, alive = psutil.wait_procs(children, timeout=90)
    assert (len(gone), alive) == (2, [])
