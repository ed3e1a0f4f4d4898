"""A provider is asked for its keys as often as it should be, whoever shows what."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from testing.clock import ManualClock
from testing.identity_provider import new_key
from tiercel.broker.access.people.keeper import (
    FETCH_AGAIN_SECONDS,
    GOOD_SECONDS,
    LEAST_SECONDS,
    MOST_WAITING,
    WAIT_SECONDS,
    KeyKeeper,
)
from tiercel.broker.access.people.keys import ProviderKey, read_keys
from tiercel.broker.access.people.site import FETCH_SECONDS
from tiercel.core.errors import OverloadedError, UnavailableError


def keys(*names: str) -> Mapping[str, ProviderKey]:
    return read_keys([new_key(name).as_dict(private=False) for name in names], ["ES256"])


class StandIn:
    """A provider, and what was made of its answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Mapping[str, ProviderKey] | Exception = keys("one")
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.told: list[list[str]] = []
        self.clock = ManualClock()
        self.keeper = KeyKeeper(self.fetch, self.clock, lambda found: self.told.append([*found]))

    async def fetch(self) -> Mapping[str, ProviderKey]:
        self.asked += 1
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def advance(self, seconds: float) -> None:
        await settle()
        self.clock.advance(seconds)
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def kept() -> AsyncIterator[StandIn]:
    provider = StandIn()
    running = asyncio.create_task(provider.keeper.run())
    try:
        yield provider
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_keys_are_fetched_at_the_start_and_each_hour() -> None:
    async with kept() as provider:
        found = await provider.keeper.find("one")
        assert found is not None
        assert (found.id, provider.asked, provider.told) == ("one", 1, [["one"]])
        await provider.advance(FETCH_AGAIN_SECONDS - 1)
        assert provider.asked == 1
        provider.answer = keys("two")
        await provider.advance(1)
        assert (provider.asked, provider.told[-1]) == (2, ["two"])
        assert await provider.keeper.find("one") is None


async def test_a_new_key_is_fetched_when_it_is_first_seen_and_others_ids_make_nobody_ask_for_ever() -> None:
    async with kept() as provider:
        await provider.keeper.find("one")
        for number in range(1_000):
            assert await provider.keeper.find(f"made up {number}") is None
        assert provider.asked == 1
        await provider.advance(LEAST_SECONDS)
        assert provider.asked == 1
        provider.answer = keys("one", "new")
        assert await provider.keeper.find("new") is not None
        for number in range(1_000):
            assert await provider.keeper.find(f"made up {number}") is None
        assert provider.asked == 2
        right, provider.answer = provider.answer, UnavailableError("the provider answered 500")
        await provider.advance(LEAST_SECONDS)
        for number in range(1_000):
            assert await provider.keeper.find(f"made up {number}") is None
        assert provider.asked == 3, "also where it does not answer"
        provider.answer = right
        await provider.advance(LEAST_SECONDS)
        for _ in range(30):
            await provider.advance(LEAST_SECONDS / 3)
            await provider.keeper.find("made up")
        assert provider.asked == 14, "once a minute, ten minutes long"


async def test_while_keys_are_fetched_few_wait_and_who_has_a_known_key_does_not() -> None:
    async with kept() as provider:
        await provider.keeper.find("one")
        await provider.advance(LEAST_SECONDS)
        provider.may_answer.clear()
        waiting = [asyncio.create_task(provider.keeper.find(f"{number}")) for number in range(MOST_WAITING)]
        await settle()
        assert not any(task.done() for task in waiting)
        with pytest.raises(OverloadedError, match="too many wait"):
            await provider.keeper.find("one more")
        assert await provider.keeper.find("one") is not None
        provider.may_answer.set()
        assert await asyncio.gather(*waiting) == [None] * MOST_WAITING
        assert provider.asked == 2
        await provider.advance(LEAST_SECONDS)
        assert await provider.keeper.find("one more") is None, "there is room again"


async def test_who_goes_while_waiting_leaves_the_place() -> None:
    async with kept() as provider:
        provider.may_answer.clear()
        for _ in range(2 * MOST_WAITING):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await provider.keeper.find("one")
        provider.may_answer.set()
        assert await provider.keeper.find("one") is not None


async def test_while_the_provider_is_down_its_keys_count_for_a_day_and_then_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert GOOD_SECONDS == 24 * 3600
    good = 2 * FETCH_AGAIN_SECONDS  # a whole day of minutes takes a second
    monkeypatch.setattr("tiercel.broker.access.people.keeper.GOOD_SECONDS", good)
    async with kept() as provider:
        await provider.keeper.find("one")
        provider.answer = UnavailableError("the provider answered 500")
        for _ in range(round(good / 60) - 1):
            await provider.advance(60)
            assert await provider.keeper.find("one") is not None
        assert provider.asked <= good / LEAST_SECONDS
        for _ in range(3):
            await provider.advance(60)
        assert provider.told[-1] == []
        with pytest.raises(UnavailableError, match="that signs tokens answered 500; try again"):
            await provider.keeper.find("one")
        provider.answer = keys("one")
        await provider.advance(60)
        assert await provider.keeper.find("one") is not None


async def test_a_provider_that_starts_late_is_soon_found() -> None:
    async with kept() as provider:
        provider.answer = UnavailableError("the provider cannot be reached")
        await settle()
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await provider.keeper.find("one")
        provider.answer = keys("one")
        await provider.advance(1)
        assert await provider.keeper.find("one") is not None
        assert provider.asked <= 3


async def test_an_error_that_nobody_thought_of_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    async with kept() as provider:
        provider.answer = ZeroDivisionError("a defect")
        with pytest.raises(UnavailableError, match="an answer that was not understood"):
            await provider.keeper.find("one")
        assert "a defect of Tiercel" in caplog.text
        provider.answer = keys("one")
        await provider.advance(1)
        assert await provider.keeper.find("one") is not None


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiercel.broker.access.people.keeper.WAIT_SECONDS", 0.01)
    async with kept() as provider:
        provider.may_answer.clear()
        with pytest.raises(UnavailableError, match="take too long"):
            await provider.keeper.find("one")


def test_whoever_waits_hears_of_the_end_of_a_fetch() -> None:
    assert FETCH_SECONDS < WAIT_SECONDS
