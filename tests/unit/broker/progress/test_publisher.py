"""What a publisher decides without a network."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NoReturn, Self

import aiomqtt
import pytest

from testing.events import progress_event
from testing.mqtt import TENANCY
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.core.errors import InvalidSpecError


@pytest.mark.parametrize("url", ["", "127.0.0.1:1883", "http://h:1", "mqtt://", "mqtt://h:port", "mqtt://h/path"])
async def test_a_malformed_url_is_refused_with_its_form(url: str) -> None:
    with pytest.raises(InvalidSpecError, match="mqtt://HOST:PORT") as caught:
        MqttPublisher(url)
    assert caught.value.field == "mqtt_url"


async def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidSpecError, match="TIERCEL_MQTT_PASSWORD") as caught:
        MqttPublisher("mqtt://somebody:secret@host")
    assert "secret" not in caught.value.message


async def test_the_embedded_broker_stays_on_loopback() -> None:
    with pytest.raises(InvalidSpecError, match="loopback only"):
        EmbeddedMqttBroker(TENANCY, "0.0.0.0")


@pytest.mark.parametrize(
    ("url", "address"),
    [("mqtt://127.0.0.1:7", "127.0.0.1:7"), ("mqtt://127.0.0.1", "127.0.0.1:1883"), ("mqtts://a.b", "a.b:8883")],
)
async def test_the_address_names_the_port_even_if_the_url_does_not(url: str, address: str) -> None:
    assert MqttPublisher(url).address == address


class _BreaksOnLeaving:
    """A connection that works until it is left, and then turns out to be broken."""

    def __init__(self, *_: object, **__: object) -> None:
        self.messages = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        raise aiomqtt.MqttError("Operation timed out")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    async def publish(self, *_: object, **__: object) -> None:
        """Takes anything."""


async def test_it_ends_when_it_is_told_to_even_if_the_connection_breaks_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aiomqtt, "Client", _BreaksOnLeaving)
    publisher = MqttPublisher("mqtt://127.0.0.1:1")
    running = asyncio.create_task(publisher.run())
    await publisher.connected.wait()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=10)
    assert done
    assert running.cancelled()


class _LosesTheCancellation(_BreaksOnLeaving):
    """A connection whose answer comes together with the cancellation, which is lost (asyncio.wait_for before 3.12)."""

    asked = asyncio.Event()

    async def __aexit__(self, *_: object) -> None:
        """Is left without trouble."""

    async def publish(self, *arguments: object, **__: object) -> None:
        if "jobs" in str(arguments[0]):
            self.asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


async def test_it_ends_even_if_a_message_was_being_taken_when_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiomqtt, "Client", _LosesTheCancellation)
    publisher = MqttPublisher("mqtt://127.0.0.1:1")
    publisher.publish_nowait(progress_event(1))
    running = asyncio.create_task(publisher.run())
    await _LosesTheCancellation.asked.wait()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=10)
    assert done
    assert running.cancelled()
