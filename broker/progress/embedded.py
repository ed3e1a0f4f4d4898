"""An MQTT broker in this process, so that nothing has to be set up: amqtt, MQTT 3.1.1.

It listens on loopback only, since it lets anybody in. Retained messages live as long as the process; the publisher
sends them again after a restart.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from types import TracebackType
from typing import Self

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

from tiercel.broker.domain.errors import InvalidSpecError, UnavailableError

_LISTENER = "default"
_STOP_SECONDS = 5.0
_LOGGER = logging.getLogger(__name__)


class EmbeddedMqttBroker:
    """An MQTT 3.1.1 broker; an async context manager that listens inside.

    Args:
        host: A loopback address.
        port: Where to listen; 0 for any free port.

    Raises:
        InvalidSpecError: The host is not a loopback address.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            message = f"The embedded MQTT broker lets anybody in, so it listens on loopback only, not on {host}."
            raise InvalidSpecError(message, field="mqtt_url")
        self._host = host
        self._wanted_port = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._broker: Broker | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"mqtt://{self.address}"

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            UnavailableError: The port is in use.
        """
        # They tell every connection and every step of it; what is an error stays.
        logging.getLogger("amqtt").setLevel(logging.ERROR)
        logging.getLogger("transitions").setLevel(logging.ERROR)
        broker = Broker(_configuration())
        await broker.start()
        self._broker = broker
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._wanted_port)
        except OSError as error:
            await broker.shutdown()
            if error.errno != errno.EADDRINUSE:
                raise
            message = f"Port {self._wanted_port} is in use; choose another MQTT port, or 0 for any free one."
            raise UnavailableError(message) from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop listening and end every connection."""
        if self._server is None or self._broker is None:
            return
        self._server.close()
        await self._shut_down(self._broker)
        if self._connections:
            # Ends by itself once the broker has closed the connection, unless it had not said CONNECT yet.
            _, late = await asyncio.wait(self._connections, timeout=0.2)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        async with asyncio.timeout(_STOP_SECONDS):
            await self._server.wait_closed()

    async def _shut_down(self, broker: Broker) -> None:
        """End amqtt's broker, which now and then waits for ever for a connection that is going at the same moment."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await broker.shutdown()
        except TimeoutError:
            _LOGGER.info("The embedded MQTT broker did not end in %g s and is dropped.", _STOP_SECONDS)
            # There is no other handle for its two tasks.
            await broker._shutdown_broadcast_loop()  # noqa: SLF001
            monitor = broker._session_monitor_task  # noqa: SLF001
            if monitor is not None:
                monitor.cancel()
                await asyncio.wait([monitor], timeout=_STOP_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._broker is None:
            return
        self._connections.add(task)
        try:
            await self._broker.external_connected(StreamReaderAdapter(reader), StreamWriterAdapter(writer), _LISTENER)
        except asyncio.CancelledError:
            # asyncio reports a cancelled connection as an error; being cancelled is how this one is closed.
            return
        finally:
            self._connections.discard(task)
            writer.close()


def _configuration() -> BrokerConfig:
    return BrokerConfig(
        # External: we listen ourselves, so that the real port is known and each connection has an owner.
        listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL, bind="")},
        # Without the plugins for $SYS topics and for logging every packet.
        plugins={"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    )
