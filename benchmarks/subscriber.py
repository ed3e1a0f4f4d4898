"""A subscriber that knows nothing of Tiercel but its MQTT broker, tenants' tokens and the root of the topics."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import aiomqtt

TOPICS = "tiercel/v1/{tenant}/#"
RECONNECT_SECONDS = 0.5
CONNECT_SECONDS = 5.0


@dataclass(slots=True)
class Subscriber:
    """Counts the messages that an MQTT broker has for tenants and keeps them in a file, one JSON object a line."""

    address: str  # of the broker, ``host:port``
    tokens: Mapping[str, str]  # of the tenants, by name
    path: Path  # the file
    messages: int = 0  # how many came

    async def run(self) -> None:
        """Listen until cancelled; a broken connection is made again."""
        with self.path.open("w", encoding="utf-8") as file:
            async with asyncio.TaskGroup() as group:
                for tenant, token in self.tokens.items():
                    group.create_task(self._listen(tenant, token, file))

    async def _listen(self, tenant: str, token: str, file: TextIO) -> None:
        while True:
            try:
                async with _subscribed(self.address, tenant, token) as client:
                    async for message in client.messages:
                        self.messages += 1
                        file.write(_line(message))
            except aiomqtt.MqttError:
                await asyncio.sleep(RECONNECT_SECONDS)


@contextlib.asynccontextmanager
async def _subscribed(address: str, tenant: str, token: str) -> AsyncIterator[aiomqtt.Client]:
    """A client that is connected and subscribed; that is seen through, for aiomqtt does not bear its cancellation."""
    host, _, port = address.rpartition(":")
    client = aiomqtt.Client(host, int(port), username=tenant, password=token, timeout=CONNECT_SECONDS)
    subscribing = asyncio.ensure_future(_subscribe(client, TOPICS.format(tenant=tenant)))
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


async def _subscribe(client: aiomqtt.Client, topics: str) -> None:
    await client.__aenter__()
    try:
        await client.subscribe(topics, qos=1)
    except aiomqtt.MqttError:
        await client.__aexit__(None, None, None)
        raise


def _line(message: aiomqtt.Message) -> str:
    text = message.payload.decode(errors="replace")
    return json.dumps({"topic": str(message.topic), "retained": message.retain, "payload": text}) + "\n"
