"""What the agent remembers of its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.trainer_agent.runs.records import RunRecord, RunRecords
from tiercel.v1 import nodes_pb2


def test_records_survive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = RunRecords(tmp_path / "runs")
    alive = RunRecord("a-1", "a", "process", order={"spec": {"metric": "accuracy"}}, token="secret")
    ended = RunRecord("b-1", "b", "docker", ended=True, exit_code=-9, reason="why", lost=True, cpu_seconds=2.0)
    for record in (alive, ended):
        records.save(record)
    (tmp_path / "runs" / "c-1.json").write_text("{")
    assert RunRecords(tmp_path / "runs").load() == [alive, ended]
    assert "c-1.json" in caplog.text
    records.remove("a-1")
    records.remove("a-1")
    assert records.load() == [ended]
    status = ended.status()
    assert (status.state, status.exit_code, status.reason) == (nodes_pb2.RUN_STATE_EXITED, -9, "why")
    assert not alive.status().HasField("exit_code")
