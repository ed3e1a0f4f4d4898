"""A subscriber that knows nothing of Tiercel but the MQTT broker's address and the root of the topics."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiomqtt

TOPICS = "tiercel/#"
RECONNECT_SECONDS = 0.5
CONNECT_SECONDS = 5.0


@dataclass(slots=True)
class Subscriber:
    """Counts the messages of an MQTT broker and keeps them in a file, one JSON object a line.

    Attributes:
        address: Of the broker, ``host:port``.
        path: The file.
        messages: How many came.
    """

    address: str
    path: Path
    messages: int = 0

    async def run(self) -> None:
        """Listen until cancelled; a broken connection is made again."""
        host, _, port = self.address.rpartition(":")
        with self.path.open("w", encoding="utf-8") as file:
            while True:
                try:
                    async with _subscribed(host, int(port)) as client:
                        async for message in client.messages:
                            self.messages += 1
                            file.write(_line(message))
                except aiomqtt.MqttError:
                    await asyncio.sleep(RECONNECT_SECONDS)


@contextlib.asynccontextmanager
async def _subscribed(host: str, port: int) -> AsyncIterator[aiomqtt.Client]:
    """A client that is connected and subscribed; that is seen through, for aiomqtt does not bear its cancellation."""
    client = aiomqtt.Client(host, port, timeout=CONNECT_SECONDS)
    subscribing = asyncio.ensure_future(_subscribe(client))
    try:
        await asyncio.shield(subscribing)
    except asyncio.CancelledError:
        with contextlib.suppress(aiomqtt.MqttError):
            await subscribing
            await client.__aexit__(None, None, None)
        raise
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


async def _subscribe(client: aiomqtt.Client) -> None:
    await client.__aenter__()
    try:
        await client.subscribe(TOPICS, qos=1)
    except aiomqtt.MqttError:
        await client.__aexit__(None, None, None)
        raise


def _line(message: aiomqtt.Message) -> str:
    text = message.payload.decode(errors="replace")
    return json.dumps({"topic": str(message.topic), "retained": message.retain, "payload": text}) + "\n"
