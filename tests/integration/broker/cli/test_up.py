"""``tiercel up`` and ``down`` as processes, with the real broker and an agent that runs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testing.mqtt import subscribed
from testing.stand_in_agent import SERVING
from testing.until import until
from testing.warm_python import WarmProcess, lasting_python
from tiercel import Client, InvalidSpecError, UnavailableError
from tiercel.broker.cli.up.detached import _slow, _to_text, options_from, start_detached
from tiercel.broker.cli.up.options import Places, UpOptions
from tiercel.broker.cli.up.processes import wait_exit
from tiercel.broker.cli.up.stop import run_down
from tiercel.broker.client.state_dir import read_token
from tiercel.broker.state_lock import up_lock
from tiercel.core.locks import is_held


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Places]:
    """A state directory in which nothing is left running."""
    yield Places(tmp_path / "state")
    await run_down(tmp_path / "state")


@dataclass(frozen=True, slots=True)
class Up:
    """A running ``up``, and what it prints and complains."""

    process: WarmProcess
    output: Path
    errors: Path

    async def line(self) -> str:
        """Its first line, once everything listens."""
        await until(lambda: self.output.read_text().endswith("\n") or self.process.poll() is not None, seconds=90)
        assert self.output.read_text(), self.errors.read_text()
        return self.output.read_text()

    async def end(self) -> int:
        """Its exit code, once it has ended."""
        await until(lambda: self.process.poll() is not None, seconds=90)
        return self.process.wait()


@contextlib.contextmanager
def up(places: Places, *options: str) -> Iterator[Up]:
    """A running ``up``, whose modules are there when it begins; killed at the end if it still is."""
    template = lasting_python(("tiercel.broker.cli.up.run", "tiercel.broker.server"))
    command = ("-m", "testing.up_with_stand_in", "--state-dir", str(places.state_dir), *options)
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        with Path(os.devnull).open("rb") as nothing, output.open("wb") as said, errors.open("wb") as complained:
            process = template.start_with(command, os.environ, (nothing, said, complained), None)
        try:
            yield Up(process, output, errors)
        finally:
            process.kill()
            process.wait(30)


async def test_it_says_where_everything_is_and_stops_everything(places: Places) -> None:
    with up(places) as running:
        line = await running.line()
        addresses = json.loads(places.addresses.read_text())
        async with Client.from_state_dir(places.state_dir, tenant="alice") as client:
            (node,) = await client.list_nodes()
        token = read_token(places.state_dir, "alice")
        async with subscribed(int(addresses["mqtt"].rpartition(":")[2]), tenant="alice", token=token) as subscriber:
            await subscriber.wait_topics("broker/presence", "nodes/n1/presence")
        running.process.send_signal(signal.SIGINT)
        code = await running.end()

    assert line.startswith("Tiercel is up: broker and node n1\n")
    assert max(map(len, line.replace(str(places.state_dir), "").splitlines())) <= 80
    assert set(addresses) == {"broker", "nodes", "mqtt", "dashboard", "serving_http", "serving_grpc", "broker_pid"}
    assert int(addresses.pop("broker_pid")) == running.process.pid
    assert all(address in line for address in addresses.values())
    assert (addresses["serving_http"], addresses["serving_grpc"]) == SERVING
    assert (node.id, node.online) == ("n1", True)
    assert code == 0
    assert not is_held(places.agent_lock)


async def test_killed_it_leaves_the_agent_and_is_taken_up_again_where_it_was(places: Places) -> None:
    with up(places) as running:
        await running.line()
        before = json.loads(places.addresses.read_text())
        agent = places.agent_lock.read_text()
        running.process.kill()
        await running.end()
    assert is_held(places.agent_lock)

    with up(places) as running:
        await running.line()
        assert json.loads(places.addresses.read_text()) == before | {"broker_pid": str(running.process.pid)}
        assert places.agent_lock.read_text() == agent
        running.process.terminate()
        assert await running.end() == 0

    await until(lambda: not is_held(places.agent_lock))


async def test_there_is_one_in_a_state_directory_and_down_stops_it(places: Places) -> None:
    with up(places) as first:
        await first.line()
        with up(places) as second:
            assert await second.end() == 1
            said = f"Tiercel is up already in {places.state_dir} (process {first.process.pid})"
            assert said in second.errors.read_text()

        assert await run_down(places.state_dir) == ["the broker with its agent and inference server"]

        assert await first.end() == 0
    assert not is_held(places.agent_lock)


async def test_a_port_in_use_is_named_with_its_flag(places: Places) -> None:
    """The ports of the broker's other doors: test_server_faults."""
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with up(places, "--nodes-port", str(port)) as running:
            assert await running.end() == 1
            errors = running.errors.read_text()

    assert f"Port {port} (--nodes-port) is in use" in errors
    assert "Traceback" not in errors
    assert not is_held(places.agent_lock)


async def test_a_state_directory_that_is_a_plain_file_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("mine")
    with up(Places(folder)) as running:
        assert await running.end() == 1
        (line,) = running.errors.read_text().splitlines()

    assert line.startswith(f"Error: state_dir: {folder} cannot be used (")
    for unusable in (folder / "below", Path("/proc/nobody")):
        with (
            pytest.raises(InvalidSpecError, match="choose a folder of your own that you may write to"),
            up_lock(unusable / "lock"),
        ):
            pass
        assert await run_down(unusable) == []
    assert folder.read_text() == "mine"


STAND_IN = (sys.executable, "-m", "testing.up_with_stand_in", "--state-dir")


async def test_detached_it_outlives_who_started_it_and_says_how_to_stop_it(places: Places, tmp_path: Path) -> None:
    options = up_options(places.state_dir)
    said = await start_detached(options, (*STAND_IN, str(places.state_dir)))

    first, *_, following, stopping, _log = said.splitlines()
    assert first == "Tiercel is up: broker and node n1"
    assert "'tiercel submit FOLDER'" in following
    pid = int(places.up_lock.read_text())
    assert f"(process {pid})" in stopping
    assert f"'tiercel down --state-dir {places.state_dir}'" in stopping
    assert os.getsid(pid) == pid, "no terminal takes it along"
    with pytest.raises(UnavailableError, match=rf"Tiercel is up already in .* \(process {pid}\)"):
        await start_detached(options)
    assert "Traceback" not in (places.state_dir / "up.log").read_text()
    assert await run_down(places.state_dir) == ["the broker with its agent and inference server"]


async def test_detached_it_says_why_it_does_not_come_up(tmp_path: Path) -> None:
    options = up_options(tmp_path / "state")
    speaks = (sys.executable, "-c", "import sys; sys.exit('Error: No luck today.')")
    with pytest.raises(UnavailableError, match=r"^No luck today\.$"):
        await start_detached(options, speaks)
    with pytest.raises(UnavailableError, match=r"ended with exit code 3; see .*up\.log"):
        await start_detached(options, (sys.executable, "-c", "raise SystemExit(3)"))
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSpecError, match="cannot be used"):
        await start_detached(replace(options, state_dir=tmp_path / "file"))


async def test_detached_it_goes_on_if_it_takes_long_and_ends_if_nobody_waits(tmp_path: Path) -> None:
    options = up_options(tmp_path / "state")
    sleeps = (sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    log = Places(options.state_dir).up_log
    with pytest.raises(UnavailableError, match="goes on trying"):
        await start_detached(options, sleeps, seconds=0.2)
    await until(lambda: log.read_text().strip())
    pid = int(log.read_text())
    os.kill(pid, signal.SIGKILL)

    waiting = asyncio.create_task(start_detached(options, sleeps))
    await until(lambda: len(log.read_text().split()) == 2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    pidfd = os.pidfd_open(int(log.read_text().split()[1]))
    await asyncio.wait_for(wait_exit(pidfd), 90)
    os.close(pidfd)


def test_detached_it_tells_what_it_said_last_where_it_takes_long(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    log.write_text("Of another time.\n")
    before = log.stat().st_size
    assert f"goes on trying. See {log}, or" in _slow(120, log, before).message
    with log.open("a") as file:
        file.write("The agent ended.\nIt is started again.\n\n")
    assert f"goes on trying. It said last: It is started again. See {log}, or" in _slow(120, log, before).message


def test_options_reach_the_process_in_the_background(tmp_path: Path) -> None:
    options = replace(up_options(tmp_path), tenants=("a", "b"), runtimes=("docker",), cpu_cores=1.5, policy="fair")
    options = replace(options, oidc_issuer=("https://a", "https://c"), oidc_audience=("b",), oidc_algorithms=("ES384",))
    assert options_from(_to_text(options)) == options


def up_options(state_dir: Path) -> UpOptions:
    return UpOptions(
        state_dir=state_dir,
        broker_port=0,
        nodes_port=0,
        http_port=0,
        grpc_port=0,
        mqtt_port=0,
        mqtt_url="",
        policy="",
        tenants=("default",),
        runtimes=(),
        node_id="n1",
        cpu_cores=None,
    )
