"""Who looks for weak doors finds them: else it would find nothing wrong anywhere."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from datetime import UTC, datetime

import pytest

from testing.weak_tls import hears_strangers, weaknesses_of
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.contexts import load_identity

NOW = datetime.now(UTC)


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    await reader.read(1000)
    writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, None])
async def test_a_door_of_each_kind(version: ssl.TLSVersion | None) -> None:
    context = None
    if version is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:COMPLEMENTOFALL:eNULL:@SECLEVEL=0")
        load_identity(context, Authority.create(NOW).issue_to_broker([], NOW))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context.minimum_version = version
    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = [each.split(" with")[0].split(":")[0] for each in await weaknesses_of(address)]
        assert (
            set(found)
            == {
                ssl.TLSVersion.TLSv1: {"TLS 1.0", "TLS 1.1", "TLS 1.2"},
                ssl.TLSVersion.TLSv1_2: {"TLS 1.2"},
                ssl.TLSVersion.TLSv1_3: set(),
                None: {"TLS 1.3", "in the clear"},
            }[version]
        )
        assert await hears_strangers(address) is (version is not None)
