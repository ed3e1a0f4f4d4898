"""MQTT brokers to test against, and a client to look at what is published."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import aiomqtt

from testing.free_ports import free_port
from testing.needs import need
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.broker.tenancy import Tenancy
from tiercel.core.backoff import Backoff
from tiercel.core.events import Event
from tiercel.core.tenants import Tenant

WAIT_SECONDS = 20.0
"""Generous: it only decides how long a broken test takes."""


TENANCY = Tenancy(
    {name: Tenant(name, f"the-token-of-{name}") for name in ("default", "bob")}, node_token="the-token-of-nodes"
)
QUICK = Backoff(first_seconds=0.02, longest_seconds=0.1)


class News(Protocol):
    """Whatever tells news."""

    def publish_nowait(self, event: Event) -> None: ...


class BrokerUnderTest(Protocol):
    """An MQTT broker that can be stopped, and started again on the same port with nothing remembered."""

    port: int

    def publishing(self) -> contextlib.AbstractAsyncContextManager[News]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Embedded:
    """The broker that Tiercel brings along."""

    def __init__(self) -> None:
        self.port = 0
        self._broker: EmbeddedMqttBroker | None = None
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self._broker = await self._stack.enter_async_context(EmbeddedMqttBroker(TENANCY, port=self.port))
        self.port = int(self._broker.address.rpartition(":")[2])

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[News]:
        assert self._broker is not None
        yield self._broker

    async def stop(self) -> None:
        await self._stack.aclose()


class Mosquitto:
    """Debian's mosquitto, as a process of its own."""

    def __init__(self, folder: Path, options: str = "allow_anonymous true\n") -> None:
        self._folder = folder
        self._options = options
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        configuration = self._folder / "mosquitto.conf"
        configuration.write_text(f"listener {self.port} 127.0.0.1\npersistence false\n{self._options}")
        self._process = await asyncio.create_subprocess_exec(
            mosquitto_command(), "-c", str(configuration), stdout=asyncio.subprocess.DEVNULL, stderr=sys.stderr.fileno()
        )
        await wait_listening(self.port)

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[MqttPublisher]:
        publisher = MqttPublisher(f"mqtt://127.0.0.1:{self.port}", backoff=QUICK)
        task = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def mosquitto_command(name: str = "mosquitto") -> str:
    """Path of a command of the mosquitto package; skips the test where it is missing, except on CI."""
    command = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    need(command, "the command mosquitto and its clients", "mosquitto mosquitto-clients")
    return str(command)


async def wait_listening(port: int) -> None:
    """Wait until something accepts connections on a loopback port."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return


class Subscriber:
    """Sees what is published below a topic filter."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client
        self.seen: list[tuple[str, dict[str, Any], bool]] = []

    async def wait_message(self, topic_end: str, **fields: object) -> dict[str, Any]:
        """The next message whose topic ends so and whose payload has these fields; keeps all others in ``seen``."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for message in self._client.messages:
                assert isinstance(message.payload, bytes)
                payload: dict[str, Any] = json.loads(message.payload)
                self.seen.append((str(message.topic), payload, message.retain))
                if str(message.topic).endswith(topic_end) and fields.items() <= payload.items():
                    return payload
        raise AssertionError

    async def wait_topics(self, *topic_ends: str) -> None:
        """Wait until there was a message on each of these topics, in whatever order."""
        for end in topic_ends:
            if not any(topic.endswith(end) for topic in self.seen_topics()):
                await self.wait_message(end)

    def seen_topics(self) -> list[str]:
        return [topic for topic, _, _ in self.seen]


@contextlib.asynccontextmanager
async def subscribed(
    port: int, topics: str = "tiercel/#", tenant: str = "default", token: str = ""
) -> AsyncIterator[Subscriber]:
    """A client that has subscribed."""
    password = token or TENANCY.tenants[tenant].token
    async with aiomqtt.Client("127.0.0.1", port, username=tenant, password=password) as client:
        await client.subscribe(topics, qos=1)
        yield Subscriber(client)
