"""Settings that cannot work are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tiercel.broker.settings import BrokerSettings


def test_only_the_state_directory_is_needed(tmp_path: Path) -> None:
    settings = BrokerSettings(state_dir=tmp_path)
    assert (settings.host, settings.broker_port, settings.policy) == ("127.0.0.1", 0, "utility")


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_port": -1},
        {"broker_port": 65536},
        {"interval_seconds": 0},
        {"lease_seconds": float("nan")},
        {"gone_after_seconds": float("inf")},
        {"heartbeat_seconds": 10.0, "lease_seconds": 10.0},
        {"lease_seconds": 200.0, "gone_after_seconds": 100.0},
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BrokerSettings(**{"state_dir": tmp_path, **changes})


def test_the_environment_sets_what_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERCEL_POLICY", "fair")
    monkeypatch.setenv("TIERCEL_POLICY_OPTIONS", '{"window": 4, "mode": "literal", "learns": true}')
    monkeypatch.setenv("TIERCEL_MQTT_PASSWORD", "hush")
    settings = BrokerSettings(state_dir=tmp_path)
    assert settings.policy == "fair"
    assert settings.policy_options == {"window": 4, "mode": "literal", "learns": True}
    assert "hush" not in repr(settings)
