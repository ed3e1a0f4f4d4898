"""A real HAProxy with our configuration before real inference servers: under load, while all sorts of things change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import grpc
import pytest
from click.testing import CliRunner

from testing import onnx_models
from testing.brokers import running_broker, tenant_token
from testing.free_ports import free_port
from testing.membership import WIDE
from testing.needs import need
from testing.serving_process import ServingProcess, serving
from testing.until import until
from tiercel.broker.cli import app
from tiercel.broker.cli.proxy.configuration import ENDPOINT_KEY, Front
from tiercel.broker.cli.proxy.haproxy import Haproxy
from tiercel.broker.cli.proxy.keeper import Keeper, Source
from tiercel.broker.trust.authority import Authority
from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.routes import Backend, Route, Routes
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}
REQUESTS = 500
AT_ONCE = 8


@dataclass
class Broker:
    """What a broker would say."""

    routes: Routes
    authority: Authority = field(default_factory=lambda: Authority.create(datetime.now(UTC)))
    trouble: str = ""
    certificates: int = 0

    async def list_routes(self) -> Routes:
        if self.trouble:
            raise UnavailableError(self.trouble)
        return self.routes

    async def certify(self) -> Identity:
        self.certificates += 1
        return self.identity(datetime.now(UTC))

    def identity(self, at: datetime) -> Identity:
        key = make_key()
        certificate = self.authority.issue_to_tenant("alice", key.public_key(), at)
        return Identity(key_to_pem(key), to_pem(certificate, self.authority.certificate))


@dataclass
class Proxy:
    """A folder, the keeper of it, and perhaps the HAProxy that was started with it."""

    front: Front
    broker: Broker
    keeper: Keeper

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        assert "is written; start it: haproxy -W -S" in await self.keeper.renew()
        command = [haproxy_command(), "-W", "-S", str(self.front.folder / "master.sock"), "-f", str(self.keeper.file)]
        with (self.front.folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(90):
                while not await Haproxy(self.front.folder).is_running():
                    assert process.returncode is None, (self.front.folder / "log").read_text()
                    await asyncio.sleep(0.05)
            yield
        finally:
            process.terminate()
            await process.wait()

    async def rest(self, session: aiohttp.ClientSession, endpoint: str = "digits", **headers: str) -> str:
        """Which version of the world answered, or the status."""
        url = f"http://{self.front.http}/v2/models/{endpoint}/infer"
        async with session.post(url, json={"inputs": [TENSOR]}, headers=headers) as response:
            if response.status != 200:
                return str(response.status)
            return f"{(await response.json())['outputs'][0]['data'][0]:g}"

    async def grpc(self, channel: grpc.aio.Channel, endpoint: str = "digits", *, is_named: bool = False) -> str:
        request = pb.ModelInferRequest(model_name=endpoint)
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend([0] * 4)
        metadata = ((ENDPOINT_KEY, endpoint),) if is_named else ()
        try:
            answer = await pb_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        if answer.raw_output_contents:
            raise AssertionError
        return f"{answer.outputs[0].contents.fp32_contents[0]:g}"

    async def answers(self, count: int = 20, endpoint: str = "digits") -> set[str]:
        """Who answers: several requests by each protocol."""
        async with aiohttp.ClientSession() as session, grpc.aio.insecure_channel(self.front.grpc) as channel:
            by_rest = {await self.rest(session, endpoint) for _ in range(count)}
            by_grpc = {await self.grpc(channel, endpoint, is_named=True) for _ in range(count)}
        assert by_rest == by_grpc
        return by_rest


def haproxy_command() -> str:
    command = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin") or shutil.which("haproxy")
    need(command, "the command haproxy", "haproxy")
    return str(command)


def server_of(node_id: str, server: ServingProcess) -> Backend:
    return Backend(node_id, 1, server.http, server.grpc)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServingProcess]]:
    """Two nodes, of which ``n1`` answers 1 and ``n2`` answers 2; the last test of the file kills one."""
    with contextlib.ExitStack() as stack:
        found = {}
        for number, node_id in ((1, "n1"), (2, "n2")):
            folder = tmp_path_factory.mktemp(node_id)
            for endpoint in ("digits", "other"):
                onnx_models.put(folder / "models", endpoint, 1, onnx_models.plus(number))
            found[node_id] = stack.enter_context(serving(folder / "models", folder))
        yield found


def make_proxy(folder: Path, routes: Routes) -> Proxy:
    haproxy_command()
    folder.mkdir()
    front = Front(folder, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", names=("models.example.com",))
    broker = Broker(routes)
    return Proxy(front, broker, Keeper(front, Haproxy(folder), {"alice": Source(broker.list_routes, broker.certify)}))


async def test_who_is_drained_is_asked_no_more_and_a_reload_does_not_forget_it(
    tmp_path: Path, servers: dict[str, ServingProcess]
) -> None:
    first, second = (server_of(node_id, server) for node_id, server in servers.items())
    proxy = make_proxy(tmp_path / "proxy", Routes((Route("digits", (first, second)),)))
    async with proxy.running():
        assert await proxy.answers(40) == {"1", "2"}
        assert await proxy.keeper.renew() == ""
        drained = Route("digits", (replace(first, draining=True), second))
        proxy.broker.routes = Routes((drained,))
        assert "weights" in await proxy.keeper.renew()
        assert await proxy.answers(40) == {"2"}
        proxy.broker.routes = Routes((drained, Route("other", (first,))))
        assert "has read it" in await proxy.keeper.renew()
        assert await proxy.answers(40) == {"2"}
        assert await proxy.answers(endpoint="other") == {"1"}
        # All of them leave: whoever is there answers on.
        proxy.broker.routes = Routes(
            (Route("digits", tuple(replace(each, draining=True) for each in (first, second))), Route("other", (first,)))
        )
        await proxy.keeper.renew()
        assert await proxy.answers(40) == {"1", "2"}


async def test_what_is_not_there_is_said_and_nothing_but_endpoints_is_reached(
    tmp_path: Path, servers: dict[str, ServingProcess]
) -> None:
    proxy = make_proxy(tmp_path / "proxy", Routes((Route("digits", (server_of("n1", servers["n1"]),)),)))
    async with proxy.running(), aiohttp.ClientSession() as session:
        assert await proxy.rest(session, "nowhere") == "503"
        assert await proxy.rest(session, Host="models.example.com") == "1"
        assert await proxy.rest(session, Host="evil.example.com") == "421"
        for path in ("/v2/repository/models/digits/unload", "/v2/repository/index", "/v2/shares", "/metrics", "/"):
            async with session.post(f"http://{proxy.front.http}{path}", json={}) as response:
                assert (response.status, "only" in await response.text()) == (404, True)
        for path in ("/v2/models/../repository/models/digits/unload", "/v2/models/%2e%2e/repository/index"):
            reader, writer = await asyncio.open_connection(*proxy.front.http.split(":"))
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            assert (await reader.readline()).split()[1] in (b"404", b"503")
            writer.close()
        async with session.get(f"http://{proxy.front.http}/v2/health/live") as response:
            assert response.status == 200
        assert await proxy.answers() == {"1"}


async def test_nodes_elsewhere_are_asked_by_tls_and_known_by_their_name(tmp_path: Path) -> None:
    proxy = make_proxy(tmp_path / "proxy", Routes())
    key, now = make_key(), datetime.now(UTC)
    node = proxy.broker.authority.issue_to_node("n1", key.public_key(), now)
    identity = Identity(key_to_pem(key), to_pem(node, proxy.broker.authority.certificate))
    (tmp_path / "identity.pem").write_bytes(identity.to_file())
    (tmp_path / "authority.pem").write_bytes(to_pem(proxy.broker.authority.certificate))
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    onnx_models.put(tmp_path / "models", "digits", 1, onnx_models.plus(1))
    settings = {
        "tls_host": WIDE,
        "tls_identity": tmp_path / "identity.pem",
        "tls_authority": tmp_path / "authority.pem",
        "operator_token_file": tmp_path / "token",
    }
    with serving(tmp_path / "models", tmp_path, settings):
        state = state_of(tmp_path)
        real = Backend("n1", 1, https=state["https"], grpcs=state["grpcs"])
        proxy.broker.routes = Routes((Route("digits", (real,)), Route("other", (replace(real, node_id="n2"),))))
        async with proxy.running(), aiohttp.ClientSession() as session:
            assert await proxy.answers() == {"1"}
            # The same server under another's name is somebody who stands between.
            await until_down(proxy, "n2")
            assert await proxy.rest(session, "other") == "503"
            # A certificate is renewed in time, and HAProxy shows the next one.
            assert proxy.broker.certificates == 1
            old = proxy.broker.identity(now - timedelta(hours=18))
            (proxy.front.folder / "identity-alice.pem").write_bytes(old.to_file())
            assert "has read it" in await proxy.keeper.renew()
            assert proxy.broker.certificates == 2
            assert await proxy.answers() == {"1"}


async def test_a_broker_that_fails_and_a_table_of_no_use_leave_the_last_good_file(
    tmp_path: Path, servers: dict[str, ServingProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = server_of("n1", servers["n1"])
    proxy = make_proxy(tmp_path / "proxy", Routes((Route("digits", (good,)),)))
    told: list[str] = []
    async with proxy.running():
        before = proxy.keeper.file.read_text()
        proxy.broker.trouble = "the broker does not answer."
        watching = asyncio.create_task(proxy.keeper.watch(0.01, told.append))
        await until(lambda: told)
        assert await proxy.answers() == {"1"}
        # What somebody smuggled into a table gets no line of the file.
        proxy.broker.routes = Routes(
            (
                Route("digits", (good, replace(good, node_id="n2\n    server evil 192.0.2.1:80"))),
                Route("x\nfrontend evil", (good,)),
                Route("y", (replace(good, http="192.0.2.1:80 check\nbackend z"),)),
            )
        )
        proxy.broker.trouble = ""
        await asyncio.sleep(0.1)
        assert proxy.keeper.file.read_text() == before
        # A port that there is not: HAProxy refuses the file, and the one of before stays.
        proxy.broker.routes = Routes((Route("digits", (replace(good, http="127.0.0.1:99999"),)),))
        await until(lambda: len(told) >= 2)
        assert proxy.keeper.file.read_text() == before
        assert await proxy.answers() == {"1"}
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    assert told[0] == "the broker does not answer. What was before stays."
    assert "HAProxy refuses" in told[1]
    assert len(told) == 2
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tiercel.broker.cli.proxy.haproxy.shutil.which", lambda *_, **__: None)
    with pytest.raises(UnavailableError, match="not installed"):
        await proxy.keeper.renew()
    monkeypatch.undo()
    with pytest.raises(InvalidSpecError, match="HAProxy refuses"):
        await proxy.keeper.renew()


async def test_nothing_fails_while_weights_versions_endpoints_and_servers_change_under_load(
    tmp_path: Path, servers: dict[str, ServingProcess]
) -> None:
    """Nothing, not even what was in flight at the server that is killed: it is asked elsewhere once more."""
    backends = tuple(server_of(node_id, server) for node_id, server in servers.items())
    both = Routes((Route("digits", backends),))
    proxy = make_proxy(tmp_path / "proxy", both)
    outcomes: Counter[str] = Counter()

    async def change() -> None:
        def reached(count: int) -> bool:
            return outcomes.total() >= count

        await until(lambda: reached(REQUESTS // 5))
        proxy.broker.routes = Routes((Route("digits", (replace(backends[0], draining=True), backends[1])),))
        assert "weights have changed" in await proxy.keeper.renew()
        await until(lambda: reached(2 * REQUESTS // 5))
        proxy.broker.routes = Routes((Route("digits", backends), Route("other", backends)))
        assert "HAProxy has read it" in await proxy.keeper.renew()
        await until(lambda: reached(3 * REQUESTS // 5))
        onnx_models.put(servers["n1"].repository, "digits", 2, onnx_models.plus(11))
        assert (await asyncio.to_thread(servers["n1"].load, "digits")).status == 200
        await until(lambda: reached(4 * REQUESTS // 5) and outcomes["11"] > 0)
        servers["n2"].process.kill()
        after = outcomes.total() + REQUESTS // 5
        await until(lambda: reached(after))

    async def ask(session: aiohttp.ClientSession, channel: grpc.aio.Channel) -> None:
        while not changing.done():
            outcomes[await proxy.rest(session)] += 1
            outcomes[await proxy.grpc(channel)] += 1
            await asyncio.sleep(0.005)

    async with (
        proxy.running(),
        aiohttp.ClientSession() as session,
        grpc.aio.insecure_channel(proxy.front.grpc) as channel,
    ):
        changing = asyncio.create_task(change())
        async with asyncio.timeout(120):
            await asyncio.gather(*(ask(session, channel) for _ in range(AT_ONCE)))
            await changing
        assert set(outcomes) == {"1", "2", "11"}
        assert await proxy.answers() == {"11"}
        assert await proxy.answers(endpoint="other") == {"1"}


async def test_the_command_asks_a_real_broker_as_the_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    haproxy_command()
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)
    command = ["proxy", "config", "--dir", str(tmp_path / "proxy")]
    async with running_broker(tmp_path / "state", listen=WIDE) as broker:
        for address, trust in (
            (broker.broker_address, {}),
            (broker.addresses["broker_tls"], {"TIERCEL_BROKER_PIN": broker.addresses["pin"]}),
        ):
            environment = {"TIERCEL_TOKEN": tenant_token(tmp_path / "state"), **trust}
            asking = [*command, "--broker", address]
            result = await asyncio.to_thread(CliRunner().invoke, app, asking, env=environment)
            assert result.exit_code == 0, result.output
        assert "backend nobody" in (tmp_path / "proxy" / "haproxy.cfg").read_text()
        (tmp_path / "state" / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))
        of_all = [*command, "--state-dir", str(tmp_path / "state")]
        for options, code, words in (
            (["--tenant", "alice", "--tenant", "bob"], 0, "up to date"),
            (["--all-tenants"], 0, "up to date"),
            (["--tenant", "alice", "--tenant", "nobody"], 1, "no tenant 'nobody'"),
            (["--tenant", "nobody", "--all-tenants"], 0, "up to date"),
        ):
            result = await asyncio.to_thread(CliRunner().invoke, app, [*of_all, *options])
            assert (result.exit_code, words in result.output) == (code, True), result.output
        result = await asyncio.to_thread(CliRunner().invoke, app, [*of_all, "--all-tenants"], env=environment)
        assert (result.exit_code, "the environment has the token of one" in result.output) == (1, True)
        environment["TIERCEL_TOKEN"] = "nobody has this token"
        result = await asyncio.to_thread(CliRunner().invoke, app, asking, env=environment)
        assert (result.exit_code, "token" in result.output) == (1, True)


def state_of(folder: Path) -> dict[str, str]:
    content: dict[str, str] = json.loads((folder / "serving.json").read_text())
    return content


async def until_down(proxy: Proxy, node_id: str) -> None:
    haproxy = Haproxy(proxy.front.folder)
    async with asyncio.timeout(90):
        while True:
            lines = (await haproxy._ask(haproxy._stats, "show servers state nodes")).splitlines()
            # Column five is the operational state; 0 stands for stopped.
            if any(line.split()[3:4] == [node_id] and line.split()[5] == "0" for line in lines if line):
                return
            await asyncio.sleep(0.05)
