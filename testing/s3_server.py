"""A store that speaks S3, in this process: moto's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, cast

KEY: Final = "operator"
SECRET: Final = "not-to-be-told"
BUCKET: Final = "team-data"


@dataclass(frozen=True)
class S3Server:
    """A running store with one empty bucket."""

    host: str  # where it listens
    port: int  # where it listens
    client: Any  # boto3's, to put objects there

    @property
    def environment(self) -> dict[str, str]:
        """What an agent's environment has of it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.host}:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def put(self, key: str, content: bytes) -> str:
        """Put an object there; its URL."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A store of its own."""
    # Here, since it takes long: every worker collects all tests, and few of them have one that needs this.
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield S3Server(host, port, client)
        client.close()
    finally:
        server.stop()


@dataclass
class CuttingProxy:
    """Hands on what a server says, and cuts it off."""

    server_port: int  # of the server, on 127.0.0.1
    cuts: list[int]  # after how many bytes of one answer its connection is cut, for one connection after the other
    port: int = 0  # where it listens itself
    cut: list[int] = field(default_factory=list)  # which of them were made
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Until the block is left."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        with contextlib.closing(writer), contextlib.closing(to_server), contextlib.suppress(ConnectionError):
            asking = asyncio.create_task(self._ask(reader, to_server))
            try:
                await self._answer(from_server, writer)
            finally:
                asking.cancel()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                writer.write(piece)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handed_on = 0
        while piece := await reader.read(65536):
            handed_on += len(piece)
            writer.write(piece)
            await writer.drain()
            if self.cuts and handed_on >= self.cuts[0]:
                self.cut.append(self.cuts.pop(0))
                return
