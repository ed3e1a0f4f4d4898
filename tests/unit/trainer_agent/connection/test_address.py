"""Where the broker listens, and the token that the node shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiercel.trainer_agent.connection.address import DialError, LocalBroker, token_from_file


def test_addresses_and_tokens(tmp_path: Path) -> None:
    addresses, token = tmp_path / "addresses.json", tmp_path / "token"
    protected: list[int] = []
    broker = LocalBroker(addresses, protected.append)
    with pytest.raises(DialError, match="does not say where the broker is"):
        broker.address()
    with pytest.raises(DialError, match="cannot be read"):
        token_from_file(token)
    for wrong in ("{", "[]", "{}", '{"nodes": "127.0.0.1:5", "broker_pid": "many"}'):
        addresses.write_text(wrong)
        with pytest.raises(DialError):
            broker.address()
    token.write_text("\n")
    with pytest.raises(DialError, match="no first line"):
        token_from_file(token)
    addresses.write_text(json.dumps({"nodes": "127.0.0.1:5"}))
    token.write_text("secret\nsomething else\n")
    assert broker.address() == "127.0.0.1:5"
    assert token_from_file(token) == "secret"
    assert protected == []


def test_a_broker_on_the_same_machine_is_protected_once_in_each_of_its_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = tmp_path / "addresses.json"
    protected: list[int] = []

    def protect(pid: int) -> None:
        protected.append(pid)
        if pid == 18:
            raise ProcessLookupError("gone")

    broker = LocalBroker(addresses, protect)
    for pid in ("17", "17", "18", "19"):
        addresses.write_text(json.dumps({"nodes": "127.0.0.1:5", "broker_pid": pid}))
        assert broker.address() == "127.0.0.1:5"
    assert protected == [17, 18, 19]
    assert "process 18, is not protected" in caplog.text
