"""The embedded broker as a guest in somebody's event loop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.mqtt import subscribed
from tests.support.until import until
from tiercel.broker.domain.errors import UnavailableError
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
