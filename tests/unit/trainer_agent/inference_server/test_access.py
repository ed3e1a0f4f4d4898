"""The table of who may ask what, as the agent leaves it for the inference server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiercel.core.endpoint_access import AccessTable, EndpointAccess, EndpointRule
from tiercel.core.storage import from_json
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.inference_server import access
from tiercel.trainer_agent.inference_server.access import AccessKeeper

DIGITS = EndpointRule("digits", "alice", EndpointAccess.KEY)
OTHER = EndpointRule("other", "bob", EndpointAccess.TENANT)


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[AccessKeeper]:
    keeper = AccessKeeper(tmp_path / "access.json", tmp_path / "models")
    running = asyncio.create_task(keeper.run())
    yield keeper
    running.cancel()


def written(folder: Path) -> AccessTable:
    return from_json(AccessTable, (folder / "access.json").read_text())


def deliver(folder: Path, model: str) -> None:
    """As the agent leaves a model that it was given."""
    (folder / "models" / model).mkdir(parents=True)
    (folder / "models" / model / "live.json").write_text("{}")


async def test_the_newest_table_is_in_a_private_file(keeper: AccessKeeper, tmp_path: Path) -> None:
    keeper.want(AccessTable((DIGITS,)))
    keeper.want(AccessTable((DIGITS, OTHER)))
    await keeper.wait_written()
    assert written(tmp_path) == AccessTable((DIGITS, OTHER))
    assert (tmp_path / "access.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("model", ["digits", "_digits.small"])
async def test_what_a_broker_does_not_name_keeps_its_rule_while_it_is_here(
    keeper: AccessKeeper, tmp_path: Path, model: str
) -> None:
    deliver(tmp_path, model)
    keeper.want(AccessTable((DIGITS, OTHER)))
    await keeper.wait_written()
    keeper.want(AccessTable())
    await keeper.wait_written()
    assert written(tmp_path) == AccessTable((DIGITS,)), "a broker with an empty database opens nothing"


async def test_a_node_without_models_begins_with_an_empty_table(keeper: AccessKeeper, tmp_path: Path) -> None:
    await keeper.begin()
    assert written(tmp_path) == AccessTable()


async def test_where_the_table_of_models_is_lost_the_broker_is_waited_for(
    keeper: AccessKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(tmp_path, "digits")
    await keeper.begin()
    assert "nobody may" in caplog.text
    assert not (tmp_path / "access.json").exists()
    keeper.want(None)  # an older one, which knows nothing of tables
    await keeper.wait_written()
    assert written(tmp_path) == AccessTable()


async def test_an_older_broker_changes_nothing_of_what_a_newer_one_said(keeper: AccessKeeper, tmp_path: Path) -> None:
    keeper.want(AccessTable((DIGITS,)))
    await keeper.wait_written()
    keeper.want(None)
    await asyncio.sleep(0.05)
    assert written(tmp_path) == AccessTable((DIGITS,))


async def test_nothing_is_loaded_while_the_table_cannot_be_written_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(access, "_PATIENCE_SECONDS", 0.1)
    keeper = AccessKeeper(tmp_path / "not-there" / "access.json", tmp_path / "models")
    running = asyncio.create_task(keeper.run())
    await keeper.wait_written()
    keeper.want(AccessTable((DIGITS,)))
    with pytest.raises(DeliveryFailedError, match="who may ask"):
        await keeper.wait_written()
    (tmp_path / "not-there").mkdir()
    monkeypatch.setattr(access, "_PATIENCE_SECONDS", 10.0)
    await keeper.wait_written()
    assert len(caplog.records) == 1
    running.cancel()
