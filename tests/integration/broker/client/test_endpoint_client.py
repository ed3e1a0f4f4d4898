"""Endpoints that are asked at an address, with a key or none, and whom a client believes there."""

from __future__ import annotations

import ast
import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from testing.doubling_model import DoublingModel
from testing.membership import WIDE
from tiercel import (
    EndpointClient,
    InvalidSpecError,
    NotAuthenticatedError,
    NotFoundError,
    SyncEndpointClient,
    TiercelError,
    UnavailableError,
)
from tiercel.broker.cli.app import app
from tiercel.broker.client.endpoint_client import OnePlace
from tiercel.broker.trust.authority import Authority
from tiercel.core.errors import TooLargeError
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem
from tiercel.core.trust.contexts import load_identity
from tiercel.core.trust.trust import Trust

NOW = datetime.now(UTC)
AUTHORITY = Authority.create(NOW)
PIN = Trust(pin=AUTHORITY.pin)
QUESTION = {"input": [[1, 2]]}


def node(node_id: str = "n1", authority: Authority = AUTHORITY) -> Identity:
    key = make_key()
    certificate = authority.issue_to_node(node_id, key.public_key(), NOW)
    return Identity(key_to_pem(key), to_pem(certificate, authority.certificate))


def tenant() -> Identity:
    key = make_key()
    certificate = AUTHORITY.issue_to_tenant("alice", key.public_key(), NOW)
    return Identity(key_to_pem(key), to_pem(certificate, AUTHORITY.certificate))


def shows(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(context, identity)
    return context


@pytest.fixture
async def model() -> AsyncIterator[DoublingModel]:
    model = DoublingModel()
    yield model
    await model.stop()


async def test_on_the_same_machine_an_address_is_enough(model: DoublingModel) -> None:
    address = await model.start()
    for given in (address, f"http://{address}", f"http://{address}/"):
        async with EndpointClient(given) as client:
            assert (await client.infer("digits", QUESTION)).outputs["output"].tolist() == [[2, 4]]
    assert model.keys == ["", "", ""]


async def test_the_key_is_the_one_that_is_given_or_in_the_environment(
    model: DoublingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await model.start()
    monkeypatch.setenv("TIERCEL_KEY", "of-the-environment")
    for key in (None, "own"):
        async with EndpointClient(address, key=key) as client:
            await client.infer("digits", QUESTION)
    assert model.keys == ["Bearer of-the-environment", "Bearer own"]


async def test_a_node_elsewhere_is_known_by_the_pin_or_the_authoritys_file(
    model: DoublingModel, tmp_path: Path
) -> None:
    address = f"https://{await model.start(WIDE, shows(node()))}"
    file = tmp_path / "authority.pem"
    file.write_bytes(to_pem(AUTHORITY.certificate))
    for trust in (PIN, Trust(authority=file)):
        async with EndpointClient(address, key="k", trust=trust) as client:
            for _ in range(2):
                assert (await client.infer("digits", QUESTION)).version == 3
    assert (len(model.requests), model.asked) == (4, 2)


@pytest.mark.parametrize(
    ("shown", "trust", "error"),
    [
        (node(authority=Authority.create(NOW)), PIN, NotAuthenticatedError),
        (node(), Trust(pin="p" * 43), NotAuthenticatedError),
        (node(), Trust(), UnavailableError),  # the system does not believe in a broker's authority
        (tenant(), PIN, UnavailableError),  # a certificate of the same authority, and no node's
        (AUTHORITY.issue_to_broker([WIDE], NOW), PIN, InvalidSpecError),
    ],
)
async def test_nothing_is_said_to_whom_nobody_vouches_for_as_a_node(
    model: DoublingModel, shown: Identity, trust: Trust, error: type[TiercelError]
) -> None:
    model.answer = lambda: web.json_response({})
    address = f"https://{await model.start(WIDE, shows(shown))}"
    async with EndpointClient(address, key="k", trust=trust) as client:
        with pytest.raises(error):
            await client.infer("digits", QUESTION)
    assert (model.requests, model.asked) == ([], 0)


async def test_another_node_at_the_same_address_is_looked_at_anew(model: DoublingModel) -> None:
    address = f"https://{await model.start(WIDE, shows(node('n1')))}"
    async with EndpointClient(address, key="k", trust=PIN) as client:
        await client.infer("digits", QUESTION)
        await model.stop()
        await model.start(WIDE, shows(node("n2")), int(address.rpartition(":")[2]))
        assert (await client.infer("digits", QUESTION)).version == 3


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://192.0.2.1:8000", "nothing is sent unencrypted; give https://192.0.2.1:8000"),
        ("http://example.com", "give https://example.com:80"),
        ("ftp://127.0.0.1:1", "give HOST:PORT"),
        ("", "give HOST:PORT"),
        ("127.0.0.1:99999", "give HOST:PORT"),
        ("https://user@127.0.0.1:1", "give HOST:PORT"),
        ("127.0.0.1:8000/v2/models", "give HOST:PORT"),
    ],
)
def test_what_is_no_address_or_not_encrypted_is_refused(address: str, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        EndpointClient(address)


def test_another_machine_is_asked_by_tls() -> None:
    asked = {given: OnePlace(given, PIN).url for given in ("10.0.0.5:8443", "models.example.com", "[::1]:80")}
    assert asked == {
        "10.0.0.5:8443": "https://10.0.0.5:8443",
        "models.example.com": "https://models.example.com:443",
        "[::1]:80": "http://[::1]:80",
    }


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a?b", "digits\n"])
async def test_a_name_does_not_lead_elsewhere(model: DoublingModel, name: str) -> None:
    async with EndpointClient(await model.start()) as client:
        with pytest.raises(NotFoundError, match="No endpoint is called"):
            await client.infer(name, QUESTION)
    assert model.asked == 0


@pytest.mark.parametrize("answer", [{}, [], {"inputs": 1}, {"inputs": [{"name": "input"}]}])
async def test_what_is_no_inference_server_is_said(model: DoublingModel, answer: object) -> None:
    model.answer = lambda: web.json_response(answer)
    async with EndpointClient(await model.start()) as client:
        with pytest.raises(UnavailableError, match="is no inference server"):
            await client.infer("digits", QUESTION)


async def test_an_answer_without_end_or_bottom_is_not_read_on(
    model: DoublingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.broker.client.endpoint_http.MAX_ANSWER_BYTES", 1000)
    model.answer = lambda: web.json_response("x" * 1000)
    async with EndpointClient(await model.start()) as client:
        with pytest.raises(TooLargeError, match="over 1000 bytes"):
            await client.infer("digits", QUESTION)
        monkeypatch.undo()
        model.answer = lambda: web.Response(text="[" * 100_000)
        with pytest.raises(UnavailableError):
            await client.infer("digits", QUESTION)


async def test_nobody_is_led_to_another_address_with_the_key(model: DoublingModel) -> None:
    other = DoublingModel()
    there = await other.start()
    model.answer = lambda: web.Response(status=307, headers={"Location": f"http://{there}/v2/models/digits"})
    async with EndpointClient(await model.start(), key="k") as client:
        with pytest.raises(UnavailableError):
            await client.infer("digits", QUESTION)
    await other.stop()
    assert other.asked == 0


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="key: is none"):
        EndpointClient("127.0.0.1:1", key="a\r\nX-Other: b")


async def test_the_example_of_the_document_runs(model: DoublingModel, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "security.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert example is not None
    address = await model.start(WIDE, shows(node()))
    monkeypatch.setenv("TIERCEL_BROKER_PIN", AUTHORITY.pin)
    monkeypatch.setenv("TIERCEL_KEY", "k")
    code = example[1].replace("10.0.0.7:41234", address)
    names: dict[str, Any] = {}
    await eval(compile(code, "security.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert names["answer"].outputs["output"].tolist() == [[0.2, 0.4]]


async def test_the_blocking_client_and_the_command_do_the_same(
    model: DoublingModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token, a state directory or a broker."""
    address = f"https://{await model.start(WIDE, shows(node()))}"
    for name in ("TIERCEL_TOKEN", "TIERCEL_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIERCEL_STATE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("TIERCEL_BROKER_PIN", AUTHORITY.pin)

    def blocking() -> int | None:
        with SyncEndpointClient(address, key="k") as client:
            return client.infer("digits", QUESTION).version

    def command(*options: str) -> Result:
        text = 'a-key\n{"input": [[1, 2]]}'
        return CliRunner().invoke(app, ["infer", "digits", "--at", address, "--key", "-", *options], input=text)

    assert await asyncio.to_thread(blocking) == 3
    said = await asyncio.to_thread(command)
    assert (said.exit_code, said.stdout) == (0, "digits version 3\noutput FP32 [1, 2]: 2 4\n"), said.output
    assert model.keys == ["Bearer k", "Bearer a-key"]
    both = await asyncio.to_thread(command, "--broker", "127.0.0.1:1")
    assert (both.exit_code, "Give --at or --broker" in both.stderr) == (2, True)
