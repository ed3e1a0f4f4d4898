"""What an agent of release 0.1.0 left on disk is understood by this one."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from tiercel.core.cheap_variants import CheapVariant
from tiercel.core.heard_variants import heard_variants
from tiercel.trainer_agent.deliveries.delivery_log import DeliveryLog
from tiercel.trainer_agent.runs.records import RunRecords
from tiercel.v1 import common_pb2, nodes_pb2

RECORDED = Path(__file__).parents[2] / "data" / "states" / "agent-0.1.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "agent"))


def test_how_a_run_ended_is_told_the_broker(folder: Path) -> None:
    [record] = RunRecords(folder / "runs").load()
    status = record.status()
    assert (status.run_id, status.exit_code, status.lost) == ("ad9e8568-1", 0, True)
    assert (status.reason, status.cpu_seconds) == ("the agent of its node was stopped", 4.324633823)
    assert status.log_tail.startswith("epoch 1  accuracy=0.309192\n")


def test_what_was_delivered_is_not_delivered_again(folder: Path) -> None:
    told = {entry.delivery_id: entry.status() for entry in DeliveryLog(folder / "deliveries.json").entries()}
    assert {name: status.stage for name, status in told.items()} == {
        "ad9e8568-tier-1": nodes_pb2.DELIVERY_STAGE_DELIVERED,
        "ad9e8568-tier-2": nodes_pb2.DELIVERY_STAGE_LOADING,
        "0badf00d-tier-1": nodes_pb2.DELIVERY_STAGE_FAILED,
    }
    assert told["ad9e8568-tier-1"].delivered_at.ToNanoseconds() == 1795442976500000000
    assert told["0badf00d-tier-1"].reason == "the model does not export"


def test_an_int8_model_that_an_earlier_agent_made_is_one_of_the_cheap_variants(folder: Path) -> None:
    path = folder / "deliveries.json"
    stored = json.loads(path.read_bytes())
    made = common_pb2.CheapVariant(shipped=True, value=0.9)
    stored["deliveries"]["ad9e8568-tier-1"]["int8"] = base64.b64encode(made.SerializeToString()).decode()
    path.write_text(json.dumps(stored))
    for _ in range(2):  # as it was written then, and as it is now
        log = DeliveryLog(path)
        entry = log.entry("ad9e8568-tier-1")
        assert entry is not None
        assert heard_variants(entry.status().cheap_variants) == (CheapVariant(shipped=True, value=0.9),)
        log.enter(entry)
    assert "int8" not in json.loads(path.read_bytes())["deliveries"]["ad9e8568-tier-1"]
