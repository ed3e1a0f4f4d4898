"""A subscriber that knows nothing of Tiercel but the MQTT broker's address and the root of the topics."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import aiomqtt

TOPICS = "tiercel/#"
RECONNECT_SECONDS = 0.5


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
                    async with aiomqtt.Client(host, int(port)) as client:
                        await client.subscribe(TOPICS, qos=1)
                        async for message in client.messages:
                            self.messages += 1
                            file.write(_line(message))
                except aiomqtt.MqttError:
                    await asyncio.sleep(RECONNECT_SECONDS)


def _line(message: aiomqtt.Message) -> str:
    text = message.payload.decode(errors="replace")
    return json.dumps({"topic": str(message.topic), "retained": message.retain, "payload": text}) + "\n"
