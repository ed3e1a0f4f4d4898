from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.deliveries.delivery_log import FAILED, STAGED, DeliveryLog, DeliveryLogEntry
from tiercel.v1 import nodes_pb2

ENTRY = DeliveryLogEntry("job-tier-1", STAGED, value=0.93, sha256="ab")


def test_it_remembers_across_lives(tmp_path: Path) -> None:
    path = tmp_path / "deliveries.json"
    delivery_log = DeliveryLog(path)
    assert delivery_log.entries() == []
    delivery_log.enter(ENTRY)
    assert DeliveryLog(path).entry("job-tier-1") == ENTRY
    delivered = ENTRY.delivered(2_000_000_000)
    DeliveryLog(path).enter(delivered)
    assert DeliveryLog(path).entries() == [delivered]
    delivery_log = DeliveryLog(path)
    delivery_log.forget("job-tier-1")
    delivery_log.forget("job-tier-1")
    assert DeliveryLog(path).entries() == []


def test_what_the_broker_is_told() -> None:
    staged, delivered = ENTRY.status(), ENTRY.delivered(2_000_000_000).status()
    assert staged.stage == nodes_pb2.DELIVERY_STAGE_LOADING
    assert not staged.HasField("delivered_at")
    assert delivered.stage == nodes_pb2.DELIVERY_STAGE_DELIVERED
    assert (delivered.value, delivered.sha256) == (0.93, "ab")
    assert delivered.delivered_at.ToNanoseconds() == 2_000_000_000
    failed = DeliveryLogEntry("job-tier-1", FAILED, reason="why").status()
    assert (failed.stage, failed.reason) == (nodes_pb2.DELIVERY_STAGE_FAILED, "why")


def test_only_outcomes_are_final() -> None:
    assert not ENTRY.is_final
    assert ENTRY.delivered(1).is_final
    assert DeliveryLogEntry("d", FAILED).is_final


def test_a_field_that_an_earlier_release_wrote_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "deliveries.json"
    DeliveryLog(path).enter(ENTRY)
    path.write_text(path.read_text().replace('"value"', '"exported_ns": 1, "value"'))
    assert DeliveryLog(path).entries() == [ENTRY]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"deliveries": {"d": {"unknown": 1}}}'])
def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "deliveries.json"
    path.write_text(content)
    with pytest.raises(SetupError, match="cannot be read"):
        DeliveryLog(path)
