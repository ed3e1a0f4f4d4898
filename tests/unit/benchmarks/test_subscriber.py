from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.subscriber import Subscriber

CONNECTED, SUBSCRIBED = b"\x20\x02\x00\x00", b"\x90\x03"  # CONNACK, and the beginning of SUBACK


async def test_who_is_stopped_while_it_subscribes_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(CONNECTED)
        question = await reader.read(1024)
        asked.set()
        await go.wait()
        writer.write(SUBSCRIBED + question[2:4] + b"\x01")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        subscriber = asyncio.create_task(
            Subscriber(f"127.0.0.1:{port}", {"alice": "secret"}, tmp_path / "messages").run()
        )
        await asked.wait()
        subscriber.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await subscriber
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
