"""Files through a real broker: from agents that may say anything, to their tenant and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from testing.brokers import Tenant, broker_process, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.small_disk import fill, small_disk
from tiercel import Client, NotFoundError, SyncClient
from tiercel.broker import opening
from tiercel.broker.cli import app
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.v1 import nodes_pb2, nodes_pb2_grpc

FILES = {"report.html": b"<html>" * 300_000, "plots/a.svg": b"<svg/>", "plots/b.svg": b"<svg/>"}


@dataclass
class Sender:
    """Sends files in the name of an agent."""

    agent: ScriptedAgent
    state_dir: Path
    channel: grpc.aio.Channel

    async def send(self, run_id: str, files: Mapping[str, bytes], **changes: Any) -> tuple[grpc.StatusCode, str]:
        """Send all that is wanted of files; the status and what was said of it."""
        contents = {hashlib.sha256(content).hexdigest(): content for content in files.values()}
        offered = [
            nodes_pb2.OfferedFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for path, content in files.items()
        ]
        header = nodes_pb2.FilesHeader(node_id="n1", run_id=run_id, instance=self.agent.instance, files=offered)
        header.MergeFrom(nodes_pb2.FilesHeader(**changes))
        call = await self.begin(header)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the broker may end it at any time
            answer = await call.read()
            for sha256 in answer.wanted if isinstance(answer, nodes_pb2.SendFilesResponse) else ():
                for begin in range(0, len(contents[sha256]), 1 << 20):
                    await call.write(nodes_pb2.SendFilesRequest(data=contents[sha256][begin : begin + (1 << 20)]))
            with contextlib.suppress(Exception):
                await call.done_writing()
            await call.read()
        return await call.code(), await call.details() or ""

    async def begin(self, header: nodes_pb2.FilesHeader) -> Any:
        metadata = (("authorization", f"Bearer {node_token(self.state_dir)}"),)
        call = nodes_pb2_grpc.NodesServiceStub(self.channel).SendFiles(metadata=metadata, timeout=90)
        await call.write(nodes_pb2.SendFilesRequest(header=header))
        return call


@contextlib.asynccontextmanager
async def sender_of(state_dir: Path, address: str) -> AsyncIterator[Sender]:
    agent = ScriptedAgent(node_token(state_dir), "n1")
    async with agent.connected(address), grpc.aio.insecure_channel(address) as channel:
        yield Sender(agent, state_dir, channel)


@dataclass
class Set:
    alice: Tenant
    client: Client
    sender: Sender
    run_id: str
    job_id: str


@contextlib.asynccontextmanager
async def a_running_job(state_dir: Path, **settings: Any) -> AsyncIterator[Set]:
    state_dir.mkdir(exist_ok=True)
    token = tenant_token(state_dir)
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(state_dir, **settings))
        alice = await stack.enter_async_context(tenant_of(broker.broker_address, token))
        client = await stack.enter_async_context(Client(broker.broker_address, token=token))
        sender = await stack.enter_async_context(sender_of(state_dir, broker.nodes_address))
        job = await alice.submit(outputs=("*.html", "plots"))
        await sender.agent.wait_run(f"{job.id}-1")
        yield Set(alice, client, sender, f"{job.id}-1", job.id)


async def test_files_of_a_run_are_listed_and_fetched_by_their_tenant_alone(tmp_path: Path) -> None:
    async with a_running_job(tmp_path / "state") as there:
        assert await there.sender.send(there.run_id, FILES) == (grpc.StatusCode.OK, "")
        found = await there.client.files(there.job_id)
        assert [(file.path, file.size_bytes) for file in found] == [
            (path, len(content)) for path, content in sorted(FILES.items())
        ]
        progress: list[tuple[str, int]] = []
        handle = there.client.job(there.job_id)
        places = await handle.download(
            tmp_path / "out", progress=lambda file, received: progress.append((file.path, received))
        )
        assert {str(place.relative_to(tmp_path / "out")): place.read_bytes() for place in places} == FILES
        assert progress[-1] == ("report.html", len(FILES["report.html"]))
        assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
            "a.svg",
            "b.svg",
            "report.html",
        ]
        token = tenant_token(tmp_path / "state", "bob")
        async with Client(there.client.address, token=token) as bob:
            for asked in (bob.files(there.job_id), bob.download(there.job_id, tmp_path / "stolen")):
                with pytest.raises(NotFoundError):
                    await asked
        assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../report.html", "has a part '.' or '..'"),
        ("/etc/a.html", "begins with '/'"),
        ("a\nb.html", "cannot be printed"),
        ("model.pt", "is none of the job's outputs"),
    ],
)
async def test_a_path_that_the_job_did_not_name_is_refused(tmp_path: Path, path: str, said: str) -> None:
    async with a_running_job(tmp_path) as there:
        status, details = await there.sender.send(there.run_id, {path: b"x"})
        assert (status, said in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details
        assert await there.client.files(there.job_id) == ()


async def test_only_the_agent_of_the_run_may_send_its_files(tmp_path: Path) -> None:
    async with a_running_job(tmp_path) as there:
        sender = there.sender
        assert (await sender.send("nobody-1", FILES))[0] is grpc.StatusCode.NOT_FOUND
        assert (await sender.send(f"{there.job_id}-2", FILES))[0] is grpc.StatusCode.NOT_FOUND
        assert (await sender.send(there.run_id, FILES, instance="x" * 32))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await sender.send(there.run_id, FILES, node_id="n2"))[0] is grpc.StatusCode.UNAVAILABLE
        assert await there.client.files(there.job_id) == ()


async def test_what_there_is_no_room_for_is_told(tmp_path: Path) -> None:
    async with a_running_job(tmp_path, job_files_bytes=100) as there:
        header = nodes_pb2.FilesHeader(
            node_id="n1",
            run_id=there.run_id,
            instance=there.sender.agent.instance,
            files=[nodes_pb2.OfferedFile(path="a.html", size_bytes=101, sha256="0" * 64)],
        )
        call = await there.sender.begin(header)
        answer = await call.read()
        assert (list(answer.wanted), dict(answer.left_out)) == (
            [],
            {"a.html": "the files of a job may have 100 bytes together"},
        )


async def test_a_full_disk_refuses_files_in_a_sentence_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is refused beforehand, so that it is the disk that says no; it is smaller than what a broker leaves free.
    monkeypatch.setattr(opening, "DiskRoom", partial(DiskRoom, reserve_bytes=-(2**40)))
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as state_dir:
        async with a_running_job(state_dir) as there:
            filler = fill(state_dir)
            status, details = await there.sender.send(there.run_id, FILES)
            assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "no space left in" in details
            filler.unlink()
            assert list((state_dir / "files").iterdir()) == []
            assert (await there.sender.send(there.run_id, FILES))[0] is grpc.StatusCode.OK
            assert len(await there.client.files(there.job_id)) == len(FILES)


async def test_a_broker_that_is_killed_in_the_middle_has_all_or_nothing(tmp_path: Path) -> None:
    token = tenant_token(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        process, tenants, nodes, _ = await stack.enter_async_context(broker_process(tmp_path))
        alice = await stack.enter_async_context(tenant_of(tenants, token))
        sender = await stack.enter_async_context(sender_of(tmp_path, nodes))
        job = await alice.submit(outputs=("**",))
        run_id = f"{job.id}-1"
        await sender.agent.wait_run(run_id)
        assert (await sender.send(run_id, {"a": b"first"}))[0] is grpc.StatusCode.OK
        content = b"x" * (1 << 20)
        offered = [
            nodes_pb2.OfferedFile(path="a", size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()),
            nodes_pb2.OfferedFile(path="b", size_bytes=9, sha256="0" * 64),
        ]
        header = nodes_pb2.FilesHeader(node_id="n1", run_id=run_id, instance=sender.agent.instance, files=offered)
        call = await sender.begin(header)
        await call.read()
        await call.write(nodes_pb2.SendFilesRequest(data=content))
        process.kill()
        process.wait(60)
    async with running_broker(tmp_path) as broker, Client(broker.broker_address, token=token) as client:
        (file,) = await client.files(job.id)
        (place,) = await client.download(job.id, tmp_path / "out")
        assert (file.path, place.read_bytes()) == ("a", b"first")
        assert [path.name for path in (tmp_path / "files").iterdir()] == [file.sha256]


async def test_a_program_without_an_event_loop_lists_and_fetches_too(tmp_path: Path) -> None:
    async with a_running_job(tmp_path / "state") as there:
        await there.sender.send(there.run_id, FILES)
        token = tenant_token(tmp_path / "state")

        def fetch() -> tuple[list[str], list[Path]]:
            with SyncClient(there.client.address, token=token) as client:
                job = client.job(there.job_id)
                assert client.disk_use().own
                assert list(client.collect_garbage(dry_run=True)) == []
                return [file.path for file in job.files()], list(job.download(tmp_path / "out", "plots/*"))

        listed, places = await asyncio.to_thread(fetch)
        assert listed == sorted(FILES)
        assert [place.read_bytes() for place in places] == [b"<svg/>"] * 2


async def test_files_that_are_kept_no_longer_go_and_their_room_with_them(tmp_path: Path) -> None:
    async with a_running_job(tmp_path, keep_files_seconds=0) as there:
        await there.sender.send(there.run_id, FILES)
        assert [removal.what async for removal in there.client.collect_garbage()] == []  # it lives
        await there.client.cancel_job(there.job_id)
        await there.alice.wait_finished(there.job_id)
        (removal,) = [removal async for removal in there.client.collect_garbage()]
        size = sum(map(len, FILES.values()))
        assert (removal.what, removal.count, removal.size_bytes) == ("files", len(FILES), size)
        assert await there.client.files(there.job_id) == ()
        assert list((tmp_path / "files").iterdir()) == []


async def test_the_command_line_lists_and_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_running_job(tmp_path / "state") as there:
        monkeypatch.setenv("TIERCEL_TOKEN", tenant_token(tmp_path / "state"))

        async def tiercel(*arguments: str) -> Result:
            command = ["files", there.job_id, *arguments, "--broker", there.client.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        assert "No files are kept" in (await tiercel()).stderr
        await there.sender.send(there.run_id, FILES)
        listed = await tiercel()
        assert listed.stdout.splitlines()[0].split() == ["PATH", "SIZE", "AGE", "RUN"]
        assert listed.stdout.splitlines()[1].split()[:3] == ["plots/a.svg", "6", "B"]
        assert listed.stdout.splitlines()[3].split()[:3] == ["report.html", "1.72", "MiB"]
        (first, *_) = json.loads((await tiercel("--json")).stdout)
        assert set(first) == {"path", "size_bytes", "sha256", "run_id", "kept_at"}
        fetched = await tiercel("--get", "plots", "--get", "*.html", "--to", str(tmp_path / "out"))
        assert fetched.stdout.split() == [
            str(tmp_path / "out" / name) for name in ("plots/a.svg", "plots/b.svg", "report.html")
        ]
        assert (tmp_path / "out" / "report.html").read_bytes() == FILES["report.html"]
        missing = await tiercel("--get", "*.png", "--to", str(tmp_path / "out"))
        assert (missing.exit_code, "no file that matches '*.png'" in missing.stderr) == (1, True)
        assert "say which with --get" in (await tiercel("--to", "x")).stderr
