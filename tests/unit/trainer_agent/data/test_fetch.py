"""The program that fetches, in this process: what it says when the node cannot keep what comes."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.data import fetch


def test_a_disk_that_is_full_is_said_and_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "opened").mkdir()
    (tmp_path / "opened" / "x").write_bytes(b"x" * 1000)
    (tmp_path / "content").mkdir()
    order = {
        "url": f"file://{tmp_path}/opened/x",
        "trusted": f"file://{tmp_path}/opened/",
        "folder": str(tmp_path / "content"),
        "limit_bytes": 10_000,
        "silence_seconds": 1.0,
        "memory_bytes": -1,
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{json.dumps(order)}\n{fetch.GO}\n"))

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert fetch.main() == 0
    found, *_, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["found"]["size"] == 1000
    assert failed == {"failed": "the node cannot keep it (No space left on device)", "again": True}
