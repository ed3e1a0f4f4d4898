"""Runs of one node among each other, with a runtime that starts nothing."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from grpc import aio

from testing.fake_runs import FakeRun, FakeRuntime, order, table_in
from testing.nodes_broker import scripted_broker
from testing.until import until
from tiercel.core.data_sets import DataSet
from tiercel.core.jobs import Resources
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.data.cache_table import CacheTable, Entry
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.data.run_data import RunData
from tiercel.trainer_agent.disk.files import write_atomically
from tiercel.trainer_agent.disk.watch import JobFolders
from tiercel.trainer_agent.environments import installers
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.reports.journal import ReportJournal
from tiercel.trainer_agent.runs import records as run_records
from tiercel.trainer_agent.runs.files import RunPlaces
from tiercel.trainer_agent.runs.reconciler import ActualRun, Phase
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import PROTOCOL, common_pb2, nodes_pb2, trainer_pb2, trainer_pb2_grpc


def is_running(table: RunTable) -> bool:
    return table.statuses()[0].state == nodes_pb2.RUN_STATE_RUNNING


def phase(table: RunTable, run_id: str) -> Phase:
    return table.actual()[run_id].phase


async def test_a_run_waits_until_its_jobs_earlier_run_is_gone_since_they_share_a_folder(tmp_path: Path) -> None:
    """The broker gave the job up while the node was away, and began it again here while it still runs."""
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(order("job-1"))
        await until(lambda: "job-1" in runtime.runs)
        token = (tmp_path / "jobs" / "job" / "token").read_text()

        table.stop("job-1", "the broker no longer wants it", may_go_on=True)
        table.start(order("job-2"))
        await runtime.runs["job-1"].asked.wait()
        table.start(order("other-1"))
        await until(lambda: "other-1" in runtime.runs)
        assert "job-2" not in runtime.runs
        assert (tmp_path / "jobs" / "job" / "token").read_text() == token

        runtime.runs["job-1"].over.set()
        await until(lambda: "job-2" in runtime.runs)
        assert phase(table, "job-1") is Phase.ENDED
        assert phase(table, "job-2") is Phase.ALIVE
        tasks.cancel_all()


async def test_the_log_says_why_a_run_was_started_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRun, "note", "started cold: its template has ended")
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(order("job-1"))
        await until(lambda: "job-1" in runtime.runs)
        log = table.log("job-1")
        assert log is not None
        await until(lambda: log.tail() == "[tiercel: started cold: its template has ended]")
        tasks.cancel_all()


async def test_its_folders_are_watched_with_their_limits(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    wanted = order("job-1", resources=Resources(scratch_bytes=1 << 20))
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(wanted)
        await until(lambda: "job-1" in runtime.runs)
        scratch = tmp_path / "scratch" / "job-1"
        assert table.folders() == {"job": JobFolders(tmp_path / "jobs" / "job", scratch, 1 << 20)}
        assert scratch.is_dir()
        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        assert not scratch.exists()
        tasks.cancel_all()


async def test_a_run_that_is_stopped_while_it_waits_is_never_started(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(order("job-1"))
        await until(lambda: "job-1" in runtime.runs)
        table.start(order("job-2"))
        table.stop("job-2", "the broker asked it to stop")

        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-2") is Phase.ENDED)
        assert list(runtime.runs) == ["job-1"]
        (ended,) = (status for status in table.statuses() if status.run_id == "job-2")
        assert ended.reason == "the broker asked it to stop"
        tasks.cancel_all()


async def test_a_run_that_is_stopped_while_its_environment_is_built_ends_with_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\n[ $1 = --version ] && echo uv 0 || { echo pid $$; exec sleep 600; }\n")
    slow.chmod(0o755)
    monkeypatch.setattr(installers, "find_uv", lambda: str(slow))
    wanted = order("job-1", requirements=("alpha",))
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(wanted)
        await until(lambda: b"environment: pid" in table.log("job-1").read(0, 1 << 16)[1])  # type: ignore[union-attr]
        assert table.statuses()[0].state == nodes_pb2.RUN_STATE_STARTING
        pid = re.search(rb"pid (\d+)", table.log("job-1").read(0, 1 << 16)[1])  # type: ignore[union-attr]
        assert pid is not None
        table.stop("job-1", "the broker asked it to stop")
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        await until(lambda: not Path(f"/proc/{int(pid[1])}").exists())
        assert table.statuses()[0].reason == "the broker asked it to stop"
        assert runtime.runs == {}
        tasks.cancel_all()


async def test_what_is_remembered_of_a_run_has_its_secrets_names_and_no_value(tmp_path: Path) -> None:
    wanted = order("job-1", secrets=("A_KEY",))
    spec = to_proto(wanted.spec, common_pb2.JobSpec)
    runtime = FakeRuntime()
    async with scripted_broker() as broker, Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks, broker.address)
        broker.secrets["A_KEY"] = "hunter2"
        await broker.want(nodes_pb2.WantedRun(run_id="job-1", job_id="job", spec=spec))
        table.start(wanted)
        await until(lambda: "job-1" in runtime.runs)
        assert runtime.launches["job-1"].environment("/")["A_KEY"] == "hunter2"
        assert "hunter2" not in repr(runtime.launches["job-1"])
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(b"A_KEY" in path.read_bytes() for path in kept)
        assert not any(b"hunter2" in path.read_bytes() for path in kept)
        runtime.runs["job-1"].over.set()

        del broker.secrets["A_KEY"]
        again = replace(wanted, run_id="job-2")
        await broker.want(nodes_pb2.WantedRun(run_id="job-2", job_id="job", spec=spec))
        table.start(again)
        await until(lambda: table.actual()["job-2"].phase is Phase.ENDED)
        (ended,) = (status for status in table.statuses() if status.run_id == "job-2")
        assert "there is no secret A_KEY" in ended.reason
        assert not ended.lost  # to start it again would change nothing
        tasks.cancel_all()


async def test_the_agents_next_life_goes_on_with_what_lives_and_tells_what_is_gone(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        for run_id in ("job-1", "gone-1"):
            table.start(order(run_id))
        await until(lambda: len(runtime.runs) == 2)
        runtime.runs["job-1"].written.set()
        log = table.log("job-1")
        assert log is not None
        await until(lambda: log.size == 8)
        log.append(b"a line of the agent's own\n")
        tasks.cancel_all()
    assert not runtime.runs["job-1"].over.is_set()  # whoever lets go of a run does not end it
    token = (tmp_path / "jobs" / "job" / "token").read_text()
    del runtime.runs["gone-1"]

    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        await table.take_over()
        assert runtime.kept == {"job-1"}
        assert (tmp_path / "jobs" / "job" / "token").read_text() == token
        # What its limits were set to last is not known, so that whatever is wanted is applied.
        assert table.actual()["job-1"] == ActualRun(Phase.ALIVE, share=None)
        table.set_share("job-1", Share(CpuShare(0.5)))
        assert table.actual()["job-1"].share == Share(CpuShare(0.5))
        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        assert runtime.runs["job-1"].read_from == "8"
        statuses = {status.run_id: status for status in table.statuses()}
        assert (statuses["job-1"].exit_code, statuses["job-1"].lost) == (0, False)
        assert (statuses["gone-1"].reason, statuses["gone-1"].lost) == ("it was gone when its agent came back", True)
        tasks.cancel_all()


async def test_data_that_a_run_uses_stays_across_lives_of_the_agent_until_the_run_has_ended(tmp_path: Path) -> None:
    url, sha256 = "https://example.org/x.npz", "0" * 64
    cache = CacheTable(tmp_path / "data-cache", 1 << 20, 0)
    cache.load()
    place, content = cache.begin()
    (content / "x.npz").write_bytes(b"x")
    path = cache.finish("earlier-1", place, Entry(url, "1", sha256, 1, 1, "x.npz")).path
    wanted = order("job-1", data=(DataSet("digits", url, sha256),))
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        data = RunData(tmp_path)
        await data.open()
        table = table_in(tmp_path, runtime, tasks, data=data)
        table.start(wanted)
        await until(lambda: "job-1" in runtime.runs)
        assert runtime.launches["job-1"].data == (DataMount("digits", path, is_folder=False, sha256=sha256),)
        tasks.cancel_all()
    async with Supervisor() as tasks:
        data = RunData(tmp_path)
        await data.open()
        table = table_in(tmp_path, runtime, tasks, data=data)
        await table.take_over()
        data.make_room()
        assert path.exists()
        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        data.make_room()
        assert not path.exists()
        tasks.cancel_all()


async def test_a_trainer_that_has_not_dialled_again_yet_is_asked_to_stop_before_it_is_sent_a_signal(
    tmp_path: Path,
) -> None:
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        table.start(order("job-1"))
        await until(lambda: "job-1" in runtime.runs)
        ReportJournal(RunPlaces(tmp_path).reports("job-1")).append(nodes_pb2.Progress(run_id="job-1", sequence=1), ())
        tasks.cancel_all()

    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        await table.take_over()
        table.stop("job-1", "the broker asked it to stop")
        token = (tmp_path / "jobs" / "job" / "token").read_text().strip()
        hello = trainer_pb2.TrainerHello(token=token, protocol=PROTOCOL)
        async with aio.insecure_channel(f"unix:{tmp_path}/jobs/job/agent.sock") as channel:
            call = trainer_pb2_grpc.TrainerServiceStub(channel).Attach(wait_for_ready=True)
            await call.write(trainer_pb2.AttachRequest(hello=hello))
            told = None
            async with asyncio.timeout(60):
                while told is None or told.WhichOneof("message") != "stop":
                    told = cast("trainer_pb2.AttachResponse", await call.read())
            assert told.stop.reason == "the broker asked it to stop"
            assert not runtime.runs["job-1"].asked.is_set()
            call.cancel()
        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        tasks.cancel_all()


async def test_what_a_run_found_around_it_outlives_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRun, "image_id", "sha256:" + "1" * 64)
    runtime = FakeRuntime()
    for _ in range(2):
        async with Supervisor() as tasks:
            table = table_in(tmp_path, runtime, tasks)
            if runtime.runs:
                await table.take_over()
            else:
                table.start(order("job-1"))
            await until(partial(is_running, table))
            assert table.statuses()[0].image_id == "sha256:" + "1" * 64
            tasks.cancel_all()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fills the disk on which the ends of runs are remembered."""

    def write(path: Path, data: bytes) -> None:
        if b'"ended": true' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomically(path, data)

    return lambda: monkeypatch.setattr(run_records, "write_atomically", write)


async def test_a_run_ends_on_a_full_disk_and_takes_nobody_along(tmp_path: Path, full_disk: Callable[[], None]) -> None:
    runtime = FakeRuntime()
    async with Supervisor() as tasks:
        table = table_in(tmp_path, runtime, tasks)
        for run_id in ("job-1", "other-1"):
            table.start(order(run_id))
        await until(lambda: len(runtime.runs) == 2)

        full_disk()
        runtime.runs["job-1"].over.set()
        await until(lambda: phase(table, "job-1") is Phase.ENDED)
        assert phase(table, "other-1") is Phase.ALIVE
        tasks.cancel_all()
