"""The MQTT brokers that the contract is tested against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.mqtt import BrokerUnderTest, Embedded, Mosquitto


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
async def mqtt(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerUnderTest]:
    """A running broker, once of each kind."""
    broker: BrokerUnderTest = Embedded() if request.param == "embedded" else Mosquitto(tmp_path)
    await broker.start()
    yield broker
    await broker.stop()


@pytest.fixture
async def mosquitto(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    """A running broker that is not ours."""
    broker = Mosquitto(tmp_path)
    await broker.start()
    yield broker
    await broker.stop()
