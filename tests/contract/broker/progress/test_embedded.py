"""The embedded broker as a guest in somebody's event loop."""

from __future__ import annotations

import asyncio
import logging

import pytest
from amqtt.broker import Broker

from tests.support.mqtt import subscribed
from tests.support.until import until
from tiercel.broker.domain.errors import UnavailableError
from tiercel.broker.progress import embedded
from tiercel.broker.progress.embedded import EmbeddedMqttBroker


async def test_a_port_in_use_is_named() -> None:
    async with EmbeddedMqttBroker() as first:
        port = int(first.address.rpartition(":")[2])
        with pytest.raises(UnavailableError, match=f"Port {port} is in use"):
            async with EmbeddedMqttBroker(port=port):
                pass


async def test_it_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = asyncio.all_tasks()
    async with EmbeddedMqttBroker() as broker:
        port = int(broker.address.rpartition(":")[2])
        _, mute = await asyncio.open_connection("127.0.0.1", port)  # never says CONNECT
        async with subscribed(port):
            pass
    mute.close()
    await mute.wait_closed()

    await until(lambda: not asyncio.all_tasks() - before)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_leaving_it_ends_even_if_the_library_never_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(embedded, "_STOP_SECONDS", 0.05)
    async with asyncio.timeout(30):
        async with EmbeddedMqttBroker("127.0.0.1"):
            monkeypatch.setattr(Broker, "shutdown", never)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
