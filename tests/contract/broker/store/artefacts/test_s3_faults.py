"""A bucket that is away, slow, closed, full, cut off or a liar: said in a sentence, in time, and without a secret."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from testing.s3_server import BUCKET, KEY, SECRET, CuttingProxy, S3Server
from tests.contract.broker.store.artefacts.test_artefacts import LARGE, artefact_of
from tiercel.broker.store.artefacts import s3
from tiercel.broker.store.artefacts.contract import Artefacts
from tiercel.broker.store.artefacts.opening import open_artefacts
from tiercel.broker.store.artefacts.s3 import S3Artefacts
from tiercel.broker.store.artefacts.s3_calls import Calls
from tiercel.core.checkpoints import Artefact
from tiercel.core.errors import CannotWriteError, StoreDamagedError, TiercelError, UnavailableError

SMALL = b"what a run has learnt"
CALLS: dict[str, Callable[[Artefacts, Path, float], Awaitable[object]]] = {
    "put": lambda store, _, seconds: store.put(artefact_of(SMALL), io.BytesIO(SMALL), seconds),
    "put in parts": lambda store, _, seconds: store.put(artefact_of(LARGE), io.BytesIO(LARGE), seconds),
    "get": lambda store, folder, seconds: store.get(artefact_of(SMALL), folder / "back", seconds),
    "has": lambda store, _, seconds: store.has(artefact_of(SMALL), seconds),
    "delete": lambda store, _, seconds: store.delete(artefact_of(SMALL).sha256, seconds),
    "held": lambda store, _, seconds: store.held(seconds),
    "remove_unfinished": lambda store, _, seconds: store.remove_unfinished(seconds),
    "read_mark": lambda store, _, seconds: store.read_mark(seconds),
    "write_mark": lambda store, _, seconds: store.write_mark(b"ours", seconds, only_new=True),
}


@asynccontextmanager
async def opened(port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Artefacts]:
    """A store whose server is behind a port of this machine."""
    environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    store = open_artefacts(f"s3://{BUCKET}/faults")
    assert isinstance(store, S3Artefacts)
    store._client = await store._library.set_session()  # which takes a while, and no deadline here
    yield store
    await store.close()


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A server that always says the same, or (None) nothing at all."""

    calls: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await asyncio.sleep(600)
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls[asyncio.create_task(serve(reader, writer))] = writer

    server = await asyncio.start_server(start, "127.0.0.1", 0, limit=2**24)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0)  # a connection that was taken in this turn of the loop has its call in the next
        # Each connection is closed here, not by its call: one that is cancelled before its first step runs no line of
        # it, and what is left open is found in a test that comes later.
        for call, writer in calls.items():
            call.cancel()
            writer.close()
        await asyncio.gather(*calls, *(writer.wait_closed() for writer in calls.values()), return_exceptions=True)
        await server.wait_closed()


def said(status: str, code: str) -> bytes:
    """An answer of a store that refuses; it repeats what it was told, as some do."""
    body = f"<Error><Code>{code}</Code><Message>{KEY} {SECRET}</Message></Error>".encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def test_one_that_never_answers_is_given_up_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(None) as port, opened(port, monkeypatch) as store:
        with pytest.raises(UnavailableError, match="does not answer"):
            await store.has(artefact_of(SMALL), 0.01)
        for call in CALLS.values():
            began = time.monotonic()
            with pytest.raises(UnavailableError, match=r"does not answer \(not within 0.05 s\)"):
                await call(store, tmp_path, 0.05)
            assert time.monotonic() - began < 8
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (said("403 Forbidden", "AccessDenied"), UnavailableError, "its credentials do not open it (AccessDenied)"),
        (said("403 Forbidden", f"x {SECRET}"), UnavailableError, "its credentials do not open it (status 403)"),
        (said("404 Not Found", "NoSuchBucket"), UnavailableError, "there is no such bucket"),
        (said("507 Insufficient Storage", "XMinioStorageFull"), CannotWriteError, "is full (XMinioStorageFull)"),
        (said("503 Slow Down", "SlowDown"), UnavailableError, "does not answer (SlowDown)"),
        (said("400 Bad Request", "Odd"), UnavailableError, "refuses: Odd"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", UnavailableError, "does not answer ("),
        (b"", UnavailableError, "does not answer ("),
    ],
    ids=["closed", "tells secrets", "no bucket", "full", "busy", "refuses", "another server", "hangs up"],
)
async def test_what_it_says_becomes_a_sentence_without_secrets(
    answer: bytes,
    kind: type[TiercelError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.INFO)
    async with answering(answer) as port, opened(port, monkeypatch) as store:
        may_pass = words.startswith("does not answer")
        for name in ("put",) if may_pass else ("put", "put in parts", "held"):
            with pytest.raises(kind) as caught:
                await CALLS[name](store, tmp_path, 2.0 if may_pass else 20.0)
            assert words in caught.value.message
            assert SECRET not in caught.value.message + caplog.text


@pytest.mark.parametrize("body", [b"{}", b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"])
async def test_what_is_no_s3_ends_nothing_but_the_call(
    body: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    async with answering(answer) as port, opened(port, monkeypatch) as store:
        for name, call in CALLS.items():
            try:
                await call(store, tmp_path, 0.2)
            except (UnavailableError, StoreDamagedError):
                continue
            assert name in {"put", "delete", "held", "remove_unfinished", "read_mark", "write_mark", "has"}


async def test_one_that_comes_back_within_the_deadline_has_been_away_for_nobody(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(said("503 Slow Down", "SlowDown")) as port:
        pass
    async with opened(port, monkeypatch) as store, asyncio.TaskGroup() as group:
        putting = group.create_task(store.put(artefact_of(SMALL), io.BytesIO(SMALL), 20.0))
        await asyncio.sleep(0.3)
        assert not putting.done()
        proxy = CuttingProxy(bucket.port, cuts=[])
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", port)
        async with server:
            await putting
            assert await store.has(artefact_of(SMALL), 5.0)


async def test_what_is_cut_off_goes_on_from_there(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with opened(bucket.port, monkeypatch) as store:
        await store.put(artefact_of(LARGE), io.BytesIO(LARGE), 30.0)
    proxy = CuttingProxy(bucket.port, cuts=[3_000_000, 2_000_000, 100_000])
    async with proxy.running(), opened(proxy.port, monkeypatch) as store:
        await store.get(artefact_of(LARGE), tmp_path / "back", 30.0)
    assert proxy.cut == [3_000_000, 2_000_000, 100_000]
    assert (tmp_path / "back").read_bytes() == LARGE


async def test_what_took_the_store_longer_to_put_together_than_its_answer_was_waited_for_is_there(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = LARGE + b"slowly"
    async with opened(bucket.port, monkeypatch) as store:
        assert isinstance(store, S3Artefacts)
        complete = store._client.complete_multipart_upload

        async def answer_is_lost(**arguments: object) -> None:
            await complete(**arguments)
            raise TimeoutError

        monkeypatch.setattr(store._client, "complete_multipart_upload", answer_is_lost)
        await store.put(artefact_of(content), io.BytesIO(content), 30.0)
        assert await store.has(artefact_of(content), 5.0)


async def test_a_store_that_is_still_putting_it_together_is_not_asked_to_begin_again(
    bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it would take the memory of all parts once more."""
    content, begun = LARGE + b"more slowly", list[dict[str, object]]()
    monkeypatch.setattr(s3, "_JOINED_BYTES_PER_SECOND", 1.0)
    async with opened(bucket.port, monkeypatch) as store:
        assert isinstance(store, S3Artefacts)
        complete, look = store._client.complete_multipart_upload, store._has

        async def goes_on(**arguments: object) -> None:
            begun.append(arguments)
            raise TimeoutError

        async def looked(calls: Calls, artefact: Artefact) -> bool:
            found = await look(calls, artefact)
            if not found:
                await complete(**begun[0])  # it is done now
            return found

        monkeypatch.setattr(store._client, "complete_multipart_upload", goes_on)
        monkeypatch.setattr(store, "_has", looked)
        await store.put(artefact_of(content), io.BytesIO(content), 30.0)
    assert len(begun) == 1


async def test_what_was_put_half_leaves_nothing_there(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def uploads() -> int:
        return len(bucket.client.list_multipart_uploads(Bucket=BUCKET, Prefix="faults/").get("Uploads", []))

    async with opened(bucket.port, monkeypatch) as store:
        with pytest.raises(StoreDamagedError):
            await store.put(artefact_of(LARGE + b"!"), io.BytesIO(LARGE), 30.0)
        assert uploads() == 0
        key = f"faults/{artefact_of(LARGE).sha256}"
        bucket.client.create_multipart_upload(Bucket=BUCKET, Key=key)  # of a broker that was killed
        assert uploads() == 1
        await store.remove_unfinished(5.0)
        assert uploads() == 0
