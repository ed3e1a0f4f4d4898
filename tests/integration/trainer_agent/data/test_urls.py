"""A real agent fetches what jobs name by URL, and lets them read it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from testing.agent_process import agent_process
from testing.data_servers import CONTENT, SHA256, data_server
from testing.nodes_broker import DEADLINE, ScriptedBroker, wanted_run
from testing.s3_server import BUCKET, SECRET, s3_server
from testing.until import until
from tiercel.v1 import common_pb2, nodes_pb2

READER = """
import hashlib, os
path = os.environ["TIERCEL_DATA_DIGITS"]
print(os.path.basename(path), hashlib.sha256(open(path, "rb").read()).hexdigest())
"""


def reading(run_id: str, url: str, sha256: str = "", script: str = READER) -> nodes_pb2.WantedRun:
    """A run that reads what is there."""
    run = wanted_run(run_id, script)
    run.spec.data.append(common_pb2.DataSet(name="digits", url=url, sha256=sha256))
    return run


async def test_runs_read_what_a_url_names_and_their_logs_say_what_it_was(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    async with data_server() as server:
        prefix = server.url.removesuffix("x.npz")
        with agent_process(tmp_path / "state", broker.address, "--data-sources", prefix) as agent:
            await broker.want(
                reading("good-1", server.url, SHA256),
                reading("wrong-1", server.url, "0" * 64),
                reading("refused-1", "file:///etc/passwd"),
                reading("private-1", f"http://localhost:{server.port}/x.npz"),
            )
            for run_id in ("good-1", "wrong-1", "refused-1", "private-1"):
                await until(lambda: broker.heard.exit(run_id), seconds=DEADLINE)  # noqa: B023 - waited for at once
            ends = {run_id: broker.heard.exit(f"{run_id}-1") for run_id in ("good", "wrong", "refused", "private")}
            await agent.leave()
    words = {run_id: end.reason for run_id, end in ends.items() if end is not None}
    assert f"it has the SHA-256 {SHA256}, and the job asks for" in words["wrong"]
    assert "tiercel node data add" in words["refused"]
    assert "no address of the internet" in words["private"]
    assert not any(end.lost for end in ends.values() if end is not None)
    running = [run for run in broker.heard.runs("good-1") if run.state == nodes_pb2.RUN_STATE_RUNNING]
    assert dict(running[0].data_sha256) == {"digits": SHA256}
    log = broker.heard.output("good-1").decode().splitlines()
    assert log[-2:] == [
        f"[tiercel: data set digits: {len(CONTENT) / 2**20:.1f} MiB of {server.url}, SHA-256 {SHA256}]",
        f"x.npz {SHA256}",
    ]


async def test_an_agent_that_is_killed_while_it_fetches_leaves_nobody_fetching_and_nothing_half(
    broker: ScriptedBroker, tmp_path: Path
) -> None:
    async with data_server() as server:
        server.hold.clear()
        flags = ("--data-sources", server.url.removesuffix("x.npz"))
        arriving = tmp_path / "state" / "agent" / "data-cache" / "arriving"
        with agent_process(tmp_path / "state", broker.address, *flags) as agent:
            await broker.want(reading("job-1", server.url))
            await until(lambda: list(arriving.rglob("x.npz")), seconds=DEADLINE)
            (fetch,) = [
                child
                for child in psutil.Process(agent.process.pid).children()
                if child.status() != psutil.STATUS_ZOMBIE and "tiercel.trainer_agent.data.fetch" in child.cmdline()
            ]
            await agent.kill()
            await until(lambda: not fetch.is_running() or fetch.status() == psutil.STATUS_ZOMBIE, seconds=DEADLINE)
        server.hold.set()
        with agent_process(tmp_path / "state", broker.address, *flags) as agent:
            await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
            assert broker.heard.exit("job-1").lost  # type: ignore[union-attr]  # it has ended
            assert list(arriving.iterdir()) == []
            await broker.want(reading("job-2", server.url, SHA256))
            await until(lambda: broker.heard.exit("job-2"), seconds=DEADLINE)
            assert f"x.npz {SHA256}" in broker.heard.output("job-2").decode()
            await agent.leave()


OPENED = """
import os
print([name for name in os.environ if name.startswith("AWS")])
"""


async def test_what_opens_a_store_is_told_to_no_run_and_no_log(
    broker: ScriptedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        url = store.put("x.npz", CONTENT)
        with agent_process(tmp_path / "state", broker.address, "--data-sources", f"s3://{BUCKET}/") as agent:
            await broker.want(reading("job-1", url, script=READER + OPENED))
            await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
            await agent.leave()
    assert broker.heard.output("job-1").decode().splitlines()[-2:] == [f"x.npz {SHA256}", "[]"]
    assert SECRET not in agent.log.read_text()
