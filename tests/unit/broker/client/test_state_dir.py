"""What a client reads from a state directory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tiercel import NotAuthenticatedError, UnavailableError
from tiercel.broker.client.state_dir import PIN_FOLLOWS, default_state_dir, read_addresses, read_broker, read_token
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import to_pem


def test_where_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERCEL_STATE_DIR", "/a")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")

    assert default_state_dir() == Path("/a")
    monkeypatch.delenv("TIERCEL_STATE_DIR")
    assert default_state_dir() == Path("/b/tiercel")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_state_dir() == Path("/c/.local/state/tiercel")


def test_addresses_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "addresses.json").write_text("{")
    with pytest.raises(UnavailableError, match="cannot be read"):
        read_addresses(tmp_path)
    (tmp_path / "addresses.json").write_text('{"mqtt": "127.0.0.1:1"}')
    with pytest.raises(UnavailableError, match="did not say where"):
        read_broker(tmp_path)


def test_a_file_of_tokens_that_is_broken(tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text("[tenants")

    with pytest.raises(NotAuthenticatedError, match="TIERCEL_TOKEN"):
        read_token(tmp_path, "default")


def test_on_a_machine_that_joined_it_is_said_who_has_the_tokens(tmp_path: Path) -> None:
    (tmp_path / "addresses.json").write_text('{"broker_tls": "10.0.0.5:7443", "node_id": "far"}')
    with pytest.raises(
        NotAuthenticatedError, match=r"is node far of the broker at 10\.0\.0\.5:7443, .* run this there"
    ):
        read_token(tmp_path, "default")


def test_on_a_machine_that_joined_the_pin_is_that_of_whom_its_agent_believes(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first = Authority.create(now)
    both = first.successor(now)
    believed = tmp_path / "agent" / "authority.pem"
    believed.parent.mkdir()
    said = {"broker_tls": "10.0.0.5:7443", "pin": first.pin, PIN_FOLLOWS: "yes"}

    def pin_with(addresses: dict[str, str]) -> str:
        (tmp_path / "addresses.json").write_text(json.dumps(addresses))
        return read_broker(tmp_path)[1].pin

    assert pin_with(said) == first.pin  # nobody knows better
    for authority, pin in ((first, first.pin), (both, first.pin), (both.alone(), both.pin)):
        believed.write_bytes(to_pem(*authority.roots))
        assert pin_with(said) == pin
    # That of a certificate of the operator's is what it is.
    del said[PIN_FOLLOWS]
    assert pin_with(said) == first.pin
    believed.write_bytes(b"half")
    assert pin_with({**said, PIN_FOLLOWS: "yes"}) == first.pin
