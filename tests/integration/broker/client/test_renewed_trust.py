"""A program that runs for long goes on asking when a node believes, and shows, another authority than before."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
import pytest
from aiohttp import web

from testing.handshakes import Shown
from tiercel.broker.client.access import Access
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.inference import InferenceClient
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.places import Place
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, read_request, to_pem
from tiercel.v1 import access_pb2

NOW = datetime.now(UTC)
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}


async def tell(request: web.Request) -> web.Response:
    return web.json_response({"name": "m", "inputs": [{"name": "x", "datatype": "FP32"}]})


async def answer(request: web.Request) -> web.Response:
    return web.json_response({"model_name": "m", "model_version": "1", "outputs": [OUTPUT]})


def tenant_of(authority: Authority, believed: Authority) -> ssl.SSLContext:
    """What a tenant goes by who was given a certificate by one authority, and believes one."""
    key = make_key()
    chain = authority.chain_of(authority.issue_to_tenant("alice", key.public_key(), NOW))
    return Shown(Identity(key_to_pem(key), chain), to_pem(*believed.roots)).made(ssl.PROTOCOL_TLS_CLIENT)


class Given:
    """What the broker gave before, and what it gives to who asks again."""

    def __init__(self, url: str, *contexts: ssl.SSLContext) -> None:
        self.url = url
        self.contexts = list(contexts)

    async def find(self, endpoint: str, silent: Collection[str] = ()) -> Place:
        return Place(self.url, "n1")

    async def encryption(self, place: Place, *, has_key: bool) -> Mapping[str, Any]:
        return {"ssl": self.contexts[0]}

    def forget_trust(self) -> None:
        self.contexts.pop(0)


class Issuing:
    """A broker whose clock is so far behind this machine's that what it issues is old here from the beginning."""

    def __init__(self) -> None:
        self.authority = Authority.create(NOW)
        self.asked = 0
        self.channel = grpc.aio.insecure_channel("127.0.0.1:9")

    async def call(
        self, _method: object, request: access_pb2.IssueCertificateRequest
    ) -> access_pb2.IssueCertificateResponse:
        self.asked += 1
        key = read_request(request.certificate_request)
        certificate = self.authority.issue_to_tenant("alice", key, NOW - timedelta(hours=20))
        return access_pb2.IssueCertificateResponse(certificates=self.authority.chain_of(certificate))


async def test_who_has_a_clock_that_is_ahead_asks_for_no_certificate_at_each_request() -> None:
    broker = Issuing()
    access = Access(cast("Connection", broker))
    assert await access.context() is await access.context()
    assert broker.asked == 1
    await broker.channel.close()


@pytest.mark.parametrize("who", ["the caller", "the node", "both"])
async def test_what_was_given_before_is_asked_for_again_whoever_does_not_believe_the_other(who: str) -> None:
    first = Authority.create(NOW)
    last = first.successor(NOW).alone()
    server = Shown(last.issue_to_broker([], NOW), to_pem(*last.roots)).made(ssl.PROTOCOL_TLS_SERVER)
    before = tenant_of(
        last if who == "the caller" else first,
        last if who == "the node" else first,
    )
    application = web.Application()
    application.router.add_get("/v2/models/m", tell)
    application.router.add_post("/v2/models/m/infer", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server)
        await site.start()
        given = Given(f"https://127.0.0.1:{runner.addresses[0][1]}", before, tenant_of(last, last))
        client = InferenceClient(ClientOptions(infer_deadline_seconds=20.0), given)
        client._places["m"] = await given.find("m")  # it was asked before
        try:
            assert (await client.infer("m", {"x": [1.0]})).version == 1
        finally:
            await client.close()
        assert len(given.contexts) == 1
    finally:
        await runner.cleanup()
