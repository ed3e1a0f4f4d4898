from __future__ import annotations

import asyncio

import pytest

from testing import onnx_models
from tiercel.core.errors import InvalidRequestError, NotFoundError, UnavailableError
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry, VersionState
from tiercel.serving.runtime.engine import Session


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.ready = True
    return registry


def loaded(version: int) -> LoadedVersion:
    return LoadedVersion("m", version, Session(onnx_models.identity()))


def test_the_live_version_answers_by_name_and_by_number(registry: Registry) -> None:
    live = loaded(3)
    registry.record("m").flip(live)
    assert registry.live("m") is registry.live("m", "3") is live
    with pytest.raises(NotFoundError, match="version 2 of model 'm' is not loaded; version 3 is live"):
        registry.live("m", "2")
    with pytest.raises(InvalidRequestError, match="version 'x' is not a number"):
        registry.live("m", "x")


def test_unknown_models_are_not_found_and_those_on_their_way_not_ready(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match="model 'm' is not loaded"):
        registry.live("m")
    registry.record("m").set_status(1, VersionState.LOADING)
    with pytest.raises(UnavailableError):
        registry.live("m")
    registry.record("m").set_status(1, VersionState.UNAVAILABLE, "broken")
    with pytest.raises(NotFoundError):
        registry.live("m")


def test_until_all_models_were_tried_nothing_is_not_found() -> None:
    with pytest.raises(UnavailableError):
        Registry().live("m")


async def test_a_flip_retires_the_old_version_which_drains_with_its_last_request(registry: Registry) -> None:
    record = registry.record("m")
    old = loaded(1)
    record.flip(old)
    old.acquire()
    old.acquire()
    assert record.flip(loaded(2)) is old
    drained = asyncio.ensure_future(old.wait_drained())
    old.release()
    await asyncio.sleep(0)
    assert not drained.done()
    old.release()
    async with asyncio.timeout(90):
        await drained
    old.close()
    with pytest.raises(RuntimeError, match="after it was released"):
        _ = old.session


async def test_an_idle_version_drains_at_once(registry: Registry) -> None:
    old = loaded(1)
    registry.record("m").flip(old)
    registry.record("m").flip(None)
    async with asyncio.timeout(90):
        await old.wait_drained()


def test_the_index_lists_states_with_reasons_and_what_was_never_loaded(registry: Registry) -> None:
    record = registry.record("m")
    record.flip(loaded(1))
    record.set_status(2, VersionState.UNAVAILABLE, "it is not ONNX")
    lines = [(line.name, line.version, line.state, line.reason) for line in registry.index(["m", "other"])]
    assert lines == [
        ("m", "1", "READY", ""),
        ("m", "2", "UNAVAILABLE", "it is not ONNX"),
        ("other", "", "UNAVAILABLE", "not loaded"),
    ]
    assert [line.version for line in registry.index(["other"], only_ready=True)] == ["1"]


def test_the_history_is_bounded_and_keeps_what_is_live(registry: Registry) -> None:
    record = registry.record("m")
    record.flip(loaded(1))
    for version in range(2, 200):
        record.set_status(version, VersionState.UNAVAILABLE, "bad")
    assert len(record.history) == 32
    assert record.history[1].state is VersionState.READY
