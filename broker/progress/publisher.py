"""Publishes events over MQTT for as long as the broker lives, whatever the network does."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiomqtt

from tiercel.broker.progress.buffer import Buffer, BufferLimits
from tiercel.broker.progress.topics import Message, broker_presence, message_of
from tiercel.core.addresses import join_address
from tiercel.core.backoff import Backoff
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import Event

_LOGGER = logging.getLogger(__name__)
# The library tells each broken connection as an error; it is told here, once.
_LIBRARY_LOGGER = _LOGGER.getChild("library")
_LIBRARY_LOGGER.setLevel(logging.CRITICAL)
_TIMEOUT_SECONDS = 5.0
# After this silence the connection is probed; half as much again and it counts as broken.
_KEEPALIVE_SECONDS = 15
BACKOFF = Backoff(0.2, 10.0)
_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return join_address(self.host, self.port)


class MqttPublisher:
    """Publishes what happens, in order, to one MQTT broker.

    On every connection it says that the broker is online and sends the latest of everything retained, so that an MQTT
    broker that forgot, or was away, is right again. QoS above 0 does not outlive a connection (aiomqtt); sending
    state again is what makes up for it.

    Args:
        url: ``mqtt://HOST[:PORT]`` or ``mqtts://HOST[:PORT]`` for TLS with the system's certificates.
        username: For the MQTT broker; empty for none.
        backoff: Pauses between attempts to connect.
        now: The clock, seconds since the Unix epoch.

    Attributes:
        connected: Set while there is a connection.
        connections: How many there have been.

    Raises:
        InvalidSpecError: The URL has another form, or carries a password.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str = "",
        password: str = "",
        backoff: Backoff = BACKOFF,
        limits: BufferLimits | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._address = _parse(url)
        self._username = username
        self._password = password
        self._client_id = f"tiercel-{secrets.token_hex(4)}"
        self._backoff = backoff
        self._now = now
        self._buffer = Buffer(limits)
        self._arrived = asyncio.Event()
        self.connected = asyncio.Event()
        self._said_unreachable = False
        self._cancelled = False
        self.connections = 0

    @property
    def address(self) -> str:
        """The MQTT broker's address, ``host:port``."""
        return str(self._address)

    def publish_nowait(self, event: Event) -> None:
        """Have ``event`` published as soon as there is a connection. Never blocks, never fails."""
        self._buffer.add(message_of(event))
        self._arrived.set()

    async def run(self) -> None:
        """Publish until cancelled; the network cannot make it end. On cancellation it says that the broker goes."""
        failures = 0
        while True:
            connections = self.connections
            try:
                await self._run_connection()
            except* (aiomqtt.MqttError, OSError) as group:
                self._log_unreachable(group.exceptions[0])
            if self._cancelled:
                # The connection broke while it was being left, and its error took the place of the cancellation.
                raise asyncio.CancelledError
            failures = 1 if self.connections > connections else failures + 1
            # Jitter spreads load; nothing secret depends on it.
            await asyncio.sleep(self._backoff.seconds(failures, random.random()))  # noqa: S311

    async def _run_connection(self) -> None:
        will = broker_presence(online=False, at=self._now())
        client = aiomqtt.Client(
            self._address.host,
            self._address.port,
            username=self._username or None,
            password=self._password or None,
            identifier=self._client_id,
            # The embedded broker speaks 3.1.1 only, and every other one speaks it too.
            protocol=aiomqtt.ProtocolVersion.V311,
            clean_session=True,
            keepalive=_KEEPALIVE_SECONDS,
            will=aiomqtt.Will(will.topic, will.payload, will.qos, will.retain),
            tls_context=ssl.create_default_context() if self._address.tls else None,
            timeout=_TIMEOUT_SECONDS,
            logger=_LIBRARY_LOGGER,
        )
        async with client:
            self.connections += 1
            self._log_reachable()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_watch(client), name="mqtt-watch")
                    group.create_task(self._send(client), name="mqtt-send")
            except asyncio.CancelledError:
                self._cancelled = True
                await self._say_goodbye(client)
                raise
            finally:
                self.connected.clear()

    async def _send(self, client: aiomqtt.Client) -> None:
        await self._publish(client, broker_presence(online=True, at=self._now()))
        self._buffer.resend_state()
        self.connected.set()
        while True:
            self._arrived.clear()
            while (message := self._buffer.take()) is not None:
                await self._publish(client, message)
            await self._arrived.wait()

    async def _publish(self, client: aiomqtt.Client, message: Message) -> None:
        # Where this fails, state is sent again on the next connection, and progress is not.
        await client.publish(message.topic, message.payload, message.qos, message.retain)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # wait_for, as aiomqtt uses it, loses a cancellation that comes together with the answer (before 3.12).
            raise asyncio.CancelledError

    async def _say_goodbye(self, client: aiomqtt.Client) -> None:
        # A clean disconnect suppresses the last will, so say it aloud.
        farewell = broker_presence(online=False, at=self._now())
        try:
            await client.publish(farewell.topic, farewell.payload, farewell.qos, farewell.retain, timeout=1)
        except aiomqtt.MqttError as error:
            _LOGGER.info("Could not tell MQTT subscribers that the broker stops: %s", error)

    def _log_unreachable(self, error: BaseException) -> None:
        if self._said_unreachable:
            return
        self._said_unreachable = True
        _LOGGER.warning(
            "The MQTT broker at %s cannot be used (%s); jobs go on, news is sent once it can.",
            self._address,
            _root(error),
        )

    def _log_reachable(self) -> None:
        if self._said_unreachable or self.connections == 1:
            _LOGGER.info("Publishing news to the MQTT broker at %s.", self._address)
        self._said_unreachable = False


async def _watch(client: aiomqtt.Client) -> None:
    # Nothing is subscribed to: iterating is how aiomqtt tells that the connection broke, by raising.
    async for _ in client.messages:
        pass


def _root(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.__cause__ or error


def _parse(url: str) -> _Address:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.username or parts.password:
        message = "An MQTT URL must not carry a password; set TIERCEL_MQTT_USERNAME and TIERCEL_MQTT_PASSWORD instead."
        raise InvalidSpecError(message, field="mqtt_url")
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == -1 or parts.path.strip("/"):
        message = f"{url!r} is no MQTT URL; write mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS."
        raise InvalidSpecError(message, field="mqtt_url")
    return _Address(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], tls=parts.scheme == "mqtts")
