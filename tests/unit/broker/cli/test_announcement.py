"""What ``up`` says at the end fits a terminal, and whoever waits for it in a log has all of it or nothing."""

from pathlib import Path

import pytest

from tiercel.broker.cli.up.announcement import found_in, of_broker, of_joined_node

LOCAL = dict.fromkeys(("dashboard", "broker", "nodes", "serving_http", "serving_grpc", "mqtt"), "255.255.255.255:65535")
OTHERS = dict.fromkeys(("dashboard_tls", "broker_tls", "mqtt_tls"), "255.255.255.255:65535") | {"pin": "p" * 43}


def test_it_fits_with_all_doors_open_and_commands_need_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERCEL_STATE_DIR", str(tmp_path))
    text = of_broker("local", LOCAL | OTHERS, tmp_path)

    assert "--state-dir" not in text
    assert max(map(len, text.replace(str(tmp_path), "").splitlines())) <= 80
    assert {f"https://{OTHERS['dashboard_tls']}", OTHERS["pin"]} <= set(text.split())
    assert "For others" not in of_broker("local", LOCAL, tmp_path)


def test_half_of_it_is_not_found() -> None:
    text = of_joined_node("far", "10.0.0.5:7443", Path("/state"))
    log = f"a warning\n\n{text}\nlater"

    assert found_in(log.splitlines()) == text.rstrip("\n")
    assert found_in(log.splitlines()[:4]) == ""
    assert found_in([]) == ""
