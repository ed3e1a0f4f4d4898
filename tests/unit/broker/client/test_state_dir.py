"""What a client reads from a state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiercel import NotAuthenticatedError, UnavailableError
from tiercel.broker.client.state_dir import default_state_dir, read_addresses, read_broker, read_token


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
