"""What ``tiercel up`` is made of: locks, ports, addresses, and the keeper of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from testing.free_ports import free_port
from testing.until import until
from tiercel import InvalidSpecError, UnavailableError
from tiercel.broker.cli.up.addresses import read_earlier, write_addresses
from tiercel.broker.cli.up.agent import AgentKeeper, AgentPatience
from tiercel.broker.cli.up.joined import remember_serving, run_node
from tiercel.broker.cli.up.options import NodeOptions, Places, UpOptions
from tiercel.broker.cli.up.ports import choose_port
from tiercel.broker.cli.up.processes import stop_holder
from tiercel.broker.cli.up.run import _advertised, _broker_settings
from tiercel.broker.cli.up.stop import run_down
from tiercel.broker.state_lock import up_lock
from tiercel.core.backoff import Backoff
from tiercel.core.locks import is_held, open_holder, take

AGENT = (sys.executable, "-m", "testing.stand_in_agent")


@pytest.fixture
def options(tmp_path: Path) -> UpOptions:
    return UpOptions(
        state_dir=tmp_path / "state",
        broker_port=0,
        http_port=0,
        grpc_port=0,
        nodes_port=0,
        mqtt_port=0,
        mqtt_url="",
        policy="",
        tenants=("default",),
        runtimes=("process",),
        node_id="n1",
        cpu_cores=2.0,
    )


@contextlib.contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as listener:
        port = free_port()
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield port


def test_others_are_told_of_an_address_where_there_are_doors_for_them(options: UpOptions) -> None:
    assert _advertised(options, "") == ""
    assert _advertised(options, "10.0.0.5") == "10.0.0.5"
    assert _advertised(replace(options, advertise="10.0.0.6"), "0.0.0.0") == "10.0.0.6"
    assert _advertised(replace(options, advertise="none"), "10.0.0.5") == ""
    assert _advertised(options, "0.0.0.0") not in {"", "0.0.0.0"}
    with pytest.raises(InvalidSpecError, match="give --listen as well"):
        _advertised(replace(options, advertise="10.0.0.5"), "")


def test_what_is_said_of_the_provider_reaches_the_broker_or_else_the_environment(
    options: UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERCEL_OIDC_ISSUER", "https://environment, https://another")
    said = replace(options, oidc_issuer=("https://option",), oidc_audience=("a",), oidc_algorithms=("ES384",))
    found = [_broker_settings(each, {}) for each in (said, options)]
    assert [each.oidc_issuer for each in found] == [("https://option",), ("https://environment", "https://another")]
    assert [each.oidc_algorithms for each in found] == [("ES384",), ("ES256", "RS256")]
    assert [each.oidc_audience for each in found] == [("a",), ()]


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "state" / "up.lock"
    assert not is_held(lock)

    with up_lock(lock):
        assert is_held(lock)
        with pytest.raises(UnavailableError, match=f"process {os.getpid()}.*tiercel down"), up_lock(lock):
            pass
        holder = open_holder(lock)
        assert holder is not None
        assert holder[0] == os.getpid()
        os.close(holder[1])

    assert not is_held(lock)
    assert open_holder(lock) is None, "the file is still there, its holder is not"


def test_a_port_that_is_wanted_must_be_free() -> None:
    with listening() as port, pytest.raises(UnavailableError, match=rf"Port {port} \(--http-port\) is in use"):
        choose_port("--http-port", port, "")
    assert choose_port("--http-port", port, "") == port
    with pytest.raises(UnavailableError, match="is no port"):
        choose_port("--http-port", 70_000, "")
    with pytest.raises(UnavailableError, match=r"192\.0\.2\.7 is no address of this machine; give one"):
        choose_port("--listen-port", 7443, "", "192.0.2.7")  # of TEST-NET-1, which nobody has


def test_a_restart_gets_its_ports_back_if_they_are_free() -> None:
    with listening() as port:
        assert choose_port("--mqtt-port", 0, f"127.0.0.1:{port}") == 0
    assert choose_port("--mqtt-port", 0, f"127.0.0.1:{port}") == port
    assert choose_port("--mqtt-port", 0, "") == 0
    assert choose_port("--mqtt-port", 0, "nonsense") == 0


def test_addresses_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    assert read_earlier(path) == {}

    write_addresses(path, {"broker": "127.0.0.1:1"})

    assert json.loads(path.read_text()) == {"broker": "127.0.0.1:1"} == read_earlier(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["addresses.json"]
    path.write_text("{")
    assert read_earlier(path) == {}


@contextlib.asynccontextmanager
async def keeping(options: UpOptions, said: list[str], *, stop: bool = True) -> AsyncIterator[None]:
    options.state_dir.mkdir(exist_ok=True)
    keeper = AgentKeeper(options, said.append, AGENT, AgentPatience(backoff=Backoff(0.01, 30.0)))
    task = asyncio.create_task(keeper.keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if stop:
            await keeper.stop()


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def wait_agent(options: UpOptions, other_than: int = 0) -> int:
    lock = Places(options.state_dir).agent_lock
    await until(lambda: is_held(lock) and lock.read_text().strip() not in {"", str(other_than)})
    return int(lock.read_text())


async def test_the_agent_is_started_again_when_it_dies(options: UpOptions) -> None:
    said: list[str] = []
    async with keeping(options, said):
        first = await wait_agent(options)
        os.kill(first, signal.SIGKILL)
        second = await wait_agent(options, other_than=first)

    assert first != second
    assert not is_held(Places(options.state_dir).agent_lock)
    assert "exit code -9" in said[0]
    assert "agent.log" in said[0]
    log = Places(options.state_dir).agent_log.read_text()
    assert "node_id='n1'" in log
    assert "runtimes='process'" in log


async def test_the_agent_is_told_which_accelerators_it_may_use_and_how_it_logs(options: UpOptions) -> None:
    async with keeping(replace(options, accelerators="GPU-1,GPU-2", log_format="json"), []):
        await wait_agent(options)
        await until(lambda: "accelerators='GPU-1,GPU-2'" in Places(options.state_dir).agent_log.read_text())
    assert "log_format='json'" in Places(options.state_dir).agent_log.read_text()


async def test_the_agent_outlives_its_keeper_and_is_adopted(options: UpOptions) -> None:
    said: list[str] = []
    async with keeping(options, said, stop=False):
        first = await wait_agent(options)
    assert await wait_agent(options) == first

    async with keeping(options, said):
        await until(lambda: said)
        assert f"process {first}" in said[0]
        os.kill(first, signal.SIGKILL)
        second = await wait_agent(options, other_than=first)

    assert second != first
    assert not is_held(Places(options.state_dir).agent_lock)


async def test_an_adopted_agent_keeps_the_name_of_its_node(options: UpOptions) -> None:
    places = Places(options.state_dir)
    places.agent_dir.mkdir(parents=True)
    with take(places.agent_lock, "other-name"):
        keeper = AgentKeeper(options, lambda _: None, AGENT)
        assert keeper.node_id == "n1"
        task = asyncio.create_task(keeper.keep())
        await until(lambda: keeper.node_id == "other-name")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_adopted_agent_is_stopped_too(options: UpOptions) -> None:
    said: list[str] = []
    async with keeping(options, said, stop=False):
        await wait_agent(options)
    async with keeping(options, said):
        await until(lambda: said)

    assert not is_held(Places(options.state_dir).agent_lock)


async def test_an_agent_that_has_hardly_started_is_stopped(options: UpOptions) -> None:
    async with keeping(options, []):
        await until(Places(options.state_dir).agent_log.exists)

    assert not is_held(Places(options.state_dir).agent_lock)
    assert [
        process.pid for process in psutil.process_iter() if str(options.state_dir) in " ".join(command(process))
    ] == []


async def test_a_restart_asks_for_the_ports_of_the_last_time(options: UpOptions) -> None:
    places = Places(options.state_dir)
    options.state_dir.mkdir()
    write_addresses(places.addresses, {"broker": "127.0.0.1:1"})
    with listening() as port:
        pass
    earlier = {"serving_http": f"127.0.0.1:{port}", "serving_https": f"127.0.0.2:{port}"}
    keeper = AgentKeeper(
        replace(options, advertise="127.0.0.2", listen_names=("lab", "lab.example")), print, AGENT, earlier=earlier
    )
    task = asyncio.create_task(keeper.keep())
    await until(lambda: is_held(places.agent_lock))
    await until(lambda: "agent started" in places.agent_log.read_text())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await keeper.stop()

    said = places.agent_log.read_text()
    assert f" http_port='{port}', grpc_port='0'" in said
    assert f"tls_http_port='{port}', tls_grpc_port='0'" in said
    assert "listen_names='lab,lab.example'" in said


async def test_a_machine_that_joined_remembers_where_its_server_listened(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.agent_dir.mkdir()
    write_addresses(places.addresses, {"node_id": "far"})
    places.serving_state.write_text('{"pid": 7, "http": "127.0.0.1:1", "https": "10.0.0.7:2"}')
    told = {"node_id": "far", "serving_http": "127.0.0.1:1", "serving_https": "10.0.0.7:2"}
    remembering = asyncio.create_task(remember_serving(places))
    await until(lambda: read_earlier(places.addresses) == told)
    places.serving_state.unlink()  # the server ended
    remembering.cancel()
    await asyncio.gather(remembering, return_exceptions=True)
    await asyncio.wait({remembering := asyncio.create_task(remember_serving(places))}, timeout=0.1)
    remembering.cancel()
    assert read_earlier(places.addresses) == told


async def test_a_machine_that_joined_and_cannot_start_says_why(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.agent_dir.mkdir()
    places.identity.touch()
    write_addresses(places.addresses, {"node_id": "far"})
    with listening() as port:
        options = NodeOptions(state_dir=tmp_path, node_id="far", advertise="127.0.0.1", tls_http_port=port)
        with pytest.raises(UnavailableError, match=rf"Port {port} \(--tls-http-port\) is in use"):
            await run_node(options)


async def test_an_agent_that_cannot_start_says_why(options: UpOptions) -> None:
    options.state_dir.mkdir()
    says_why = (sys.executable, "-c", "import sys; print('Docker does not answer.', file=sys.stderr); sys.exit(2)")

    with pytest.raises(UnavailableError, match="The agent cannot start: Docker does not answer"):
        await AgentKeeper(options, print, says_why).keep()


async def test_secrets_stay_out_of_the_agents_environment(options: UpOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "OPERATOR_TOKEN", "JOIN_TOKEN", "KEY", "MQTT_PASSWORD"):
        monkeypatch.setenv(f"TIERCEL_{name}", "hush-hush")
    async with keeping(options, []):
        pid = await wait_agent(options)
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()

    assert b"PATH=" in environment
    assert b"hush-hush" not in environment + arguments


async def test_down_stops_what_was_left_behind(options: UpOptions) -> None:
    async with keeping(options, [], stop=False):
        pid = await wait_agent(options)

    assert await run_down(options.state_dir) == ["the agent"]
    assert await run_down(options.state_dir) == []
    # Still a zombie of this process, which started it: that it ended is enough.
    assert Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


STUBBORN = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
time.sleep(600)
"""


async def test_what_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUBBORN, str(lock))
    await until(lambda: is_held(lock) and lock.read_text())

    assert await stop_holder(lock, patience_seconds=0.05)

    assert await process.wait() == -signal.SIGKILL
