"""The files for mosquitto, with the real one: what arrives at whom."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest
from click.testing import CliRunner

from testing.events import endpoint_event, job_event, node_event
from testing.mqtt import QUICK, Mosquitto, Subscriber
from tiercel.broker.cli import app
from tiercel.broker.progress import mosquitto
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.broker.progress.reading import matches, may_read
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.events import StateChanged
from tiercel.core.jobs import JobState

pytestmark = pytest.mark.mosquitto
REPOSITORY = Path(__file__).resolve().parents[4]
CHANGED = StateChanged(JobState.RUNNING, "because")


def write_files(state: Path, folder: Path, *options: str) -> None:
    result = CliRunner().invoke(app, ["mqtt", "config", "--dir", str(folder), "--state-dir", str(state), *options])
    assert result.exit_code == 0, result.output


class Files:
    """A state directory with two tenants, the files made of it, and a mosquitto that goes by them."""

    def __init__(self, folder: Path) -> None:
        self.state, self.files = folder / "state", folder / "files"
        self.state.mkdir()
        tenants = open_tenancy(self.state, ("alice", "bob")).tenants
        self.tokens = {name: tenant.token for name, tenant in tenants.items()}
        write_files(self.state, self.files)
        self.mosquitto = Mosquitto(folder, options=f"user root\ninclude_dir {self.files}\n")

    @property
    def broker(self) -> tuple[str, str]:
        """As whom the broker publishes, and with which password."""
        name, password = (self.files / "broker.env").read_text().splitlines()
        return name.removeprefix("TIERCEL_MQTT_USERNAME="), password.removeprefix("TIERCEL_MQTT_PASSWORD=")

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[MqttPublisher]:
        user, password = self.broker
        url = f"mqtt://127.0.0.1:{self.mosquitto.port}"
        publisher = MqttPublisher(url, username=user, password=password, backoff=QUICK)
        task = asyncio.create_task(publisher.run())
        async with asyncio.timeout(90):
            await publisher.connected.wait()
        try:
            yield publisher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def client(self, user: str, password: str = "") -> aiomqtt.Client:
        secret = password or {**self.tokens, self.broker[0]: self.broker[1]}[user]
        return aiomqtt.Client("127.0.0.1", self.mosquitto.port, username=user, password=secret)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    made = Files(tmp_path)
    await made.mosquitto.start()
    yield made
    await made.mosquitto.stop()


async def test_each_tenant_hears_its_own_news_and_that_of_nodes_and_nobody_elses(files: Files) -> None:
    async with files.publishing() as news, contextlib.AsyncExitStack() as stack:
        for tenant in ("alice", "bob"):
            news.publish_nowait(job_event(CHANGED, tenant=tenant))  # retained before anybody subscribes
        heard = {}
        for tenant in ("alice", "bob"):
            client = await stack.enter_async_context(files.client(tenant))
            for topics in ("#", "tiercel/v1/alice/#", "tiercel/v1/bob/#", "tiercel/v1/+/jobs/+/state"):
                await client.subscribe(topics, qos=1)
            heard[tenant] = Subscriber(client)
        for tenant in ("alice", "bob"):
            news.publish_nowait(replace(job_event(CHANGED, tenant=tenant), job_id="j2"))
            news.publish_nowait(replace(endpoint_event(), tenant=tenant))
        news.publish_nowait(node_event())  # the last one: what came before it has come
        for subscriber in heard.values():
            await subscriber.wait_message("/nodes/n1/presence")
        for tenant, subscriber in heard.items():
            assert set(subscriber.seen_topics()) == {
                f"tiercel/v1/{tenant}/jobs/j1/state",
                f"tiercel/v1/{tenant}/jobs/j2/state",
                f"tiercel/v1/{tenant}/endpoints/digits/version",
                "tiercel/v1/nodes/n1/presence",
                "tiercel/v1/broker/presence",
            }


async def test_nobody_but_the_broker_is_heard(files: Files) -> None:
    forged = ("tiercel/v1/alice/jobs/j1/state", "tiercel/v1/bob/jobs/j1/state", "tiercel/v1/nodes/n1/presence", "else")
    async with files.client(files.broker[0]) as listening, files.client("bob") as bob:
        for client in (listening, bob):
            await client.subscribe("#", qos=1)
        async with files.client("alice") as alice:
            for topic in forged:
                for qos in (0, 1):
                    await alice.publish(topic, b'{"forged": true}', qos, retain=True)
        will = aiomqtt.Will("tiercel/v1/bob/jobs/j9/state", b'{"forged": true}', 1, retain=True)
        token = files.tokens["alice"]
        async with aiomqtt.Client(
            "127.0.0.1", files.mosquitto.port, username="alice", password=token, will=will
        ) as doomed:
            doomed._client._sock_close()  # so that the will is told
        async with files.publishing() as news:
            news.publish_nowait(node_event())
            for client in (listening, bob):
                subscriber = Subscriber(client)
                await subscriber.wait_message("/nodes/n1/presence")
                assert not [payload for _, payload, _ in subscriber.seen if "forged" in payload]


async def test_who_has_no_token_is_refused_and_a_changed_one_counts_after_a_reload(files: Files) -> None:
    for user, password in (("alice", files.tokens["bob"]), ("nobody", files.tokens["bob"]), ("broker", "broker")):
        with pytest.raises(aiomqtt.MqttError):
            async with files.client(user, password):
                pass
    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client("127.0.0.1", files.mosquitto.port):
            pass
    before, password = files.tokens["alice"], files.broker[1]
    path = files.state / "tenants.toml"
    path.write_text(path.read_text().replace(before, "another-long-token"))
    write_files(files.state, files.files)
    assert files.broker[1] == password
    files.mosquitto.signal(signal.SIGHUP)
    async with asyncio.timeout(90):
        while True:
            try:
                async with files.client("alice", "another-long-token"):
                    break
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)
    with pytest.raises(aiomqtt.MqttError):
        async with files.client("alice", before):
            pass


def test_files_are_for_their_owner_and_have_no_token(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for path in files.files.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not [token for token in files.tokens.values() if token in path.read_text()]
    assert files.broker[1] not in (files.files / mosquitto.PASSWORDS).read_text()


def test_what_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(tmp_path)
    (tmp_path / "file").touch()

    def refusal(folder: str, *options: str) -> str:
        command = ["mqtt", "config", "--dir", str(tmp_path / folder), "--state-dir", str(files.state), *options]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1
        return result.output

    assert "cannot be written" in refusal("file")
    assert "cannot be written" in refusal("other", "--owner", "nobody-of-that-name")
    for name, words in (("alice", "is a tenant"), ("a:b", "no user's name"), ("a\nuser root", "no user's name")):
        monkeypatch.setenv("TIERCEL_MQTT_USERNAME", name)
        assert words in refusal("named")
    assert not (tmp_path / "named" / mosquitto.RULES).exists()


def test_the_document_the_files_and_the_embedded_server_say_the_same() -> None:
    assert f"```\n{mosquitto.rules()}```" in (REPOSITORY / "docs" / "mqtt.md").read_text()
    readable = [line.removeprefix("pattern read ") for line in mosquitto.rules().splitlines() if "pattern" in line]
    granted = [pattern.replace("%u", "alice") for pattern in readable]
    for topic in ("alice/jobs/j1/state", "bob/jobs/j1/state", "nodes/n1/presence", "broker/presence", "alice2/x/y"):
        path = f"tiercel/v1/{topic}"
        assert may_read("alice", path) is any(matches(pattern, path) for pattern in granted)
