"""Hand-overs that end before anybody has taken over; the process that was to follow is a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tiercel.core.errors import UnavailableError
from tiercel.serving.models.registry import Registry
from tiercel.serving.process import handover
from tiercel.serving.process.renewal import Renewal


class Following:
    """A process that loads until it is killed, as the one that hands over hears of it."""

    pid = 4711

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.killed.set()

    async def send_state(self, *_: Any) -> None:
        self.began.set()

    async def expect(self, what: str) -> None:
        await self.killed.wait()
        raise UnavailableError(f"it did not get {what}")


class Site:
    """A renewal whose surroundings note what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.following = Following()
        nothing: Any = None
        self.renewal = Renewal(
            nothing, cast("Any", self), Registry(), lambda: self.told.append("announce"), lambda: None
        )

    def live_versions(self) -> dict[str, int]:
        return {}

    def resume(self) -> None:
        self.told.append("resume")


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site()

    @contextlib.asynccontextmanager
    async def successor(_: object) -> AsyncIterator[Following]:
        yield site.following

    monkeypatch.setattr(handover, "successor", successor)
    return site


async def test_a_server_whose_successor_fails_goes_on_as_before(site: Site) -> None:
    under_way = asyncio.create_task(site.renewal.hand_over())
    await site.following.began.wait()
    site.following.kill()
    with pytest.raises(UnavailableError, match="did not get loaded"):
        await under_way
    assert site.told == ["resume", "announce"]


async def test_one_that_leaves_meanwhile_takes_no_loads_again_and_starts_nobody_else(site: Site) -> None:
    under_way = asyncio.create_task(site.renewal.hand_over())
    await site.following.began.wait()
    site.renewal.break_off()
    with pytest.raises(UnavailableError, match="did not get loaded"):
        await under_way
    with pytest.raises(UnavailableError, match="is leaving"):
        await site.renewal.hand_over()
    assert site.told == []
