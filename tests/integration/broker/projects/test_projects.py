"""Projects over real calls: what is sent, what is not, and who sees it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing.brokers import node_token, running_broker, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.sent_projects import LIMIT, client_of, connection_of, make_project, spec_of
from testing.until import until
from tiercel.broker.api.projects import UPLOADS_OF_A_TENANT
from tiercel.broker.client.projects import known_hashes, sending
from tiercel.broker.client.projects.packing import pack
from tiercel.broker.server import Broker
from tiercel.broker.store.disk_room import RESERVE_BYTES
from tiercel.broker.store.projects import ProjectStore
from tiercel.core.errors import CannotWriteError, InvalidSpecError, NotFoundError, QuotaExceededError, UnavailableError
from tiercel.core.projects import Project, sha256_of
from tiercel.v1 import projects_pb2, projects_pb2_grpc


class Bytes:
    """What a client sends of its project, and how often it is told of it."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, sent: int, total: int) -> None:
        assert sent <= total
        self.sent = sent


async def test_an_unchanged_project_is_a_question_and_a_changed_file_is_that_file(
    broker: Broker, tmp_path: Path
) -> None:
    folder = make_project(tmp_path / "project")
    async with (
        ScriptedAgent(node_token(tmp_path / "broker")).connected(broker.nodes_address),
        client_of(broker, tmp_path) as client,
    ):
        first, second, third = Bytes(), Bytes(), Bytes()
        job = await (await client.submit(spec_of(folder), progress=first)).refresh()
        assert job.spec.project is not None
        assert job.spec.project.sha256 == pack(Project(folder=str(folder)), LIMIT).project.sha256
        await client.submit(spec_of(folder, endpoint="second"), progress=second)
        (folder / "pkg" / "model.py").write_text("WIDTH = 4")
        await client.submit(spec_of(folder, endpoint="third"), progress=third)
    assert 3 * 1024**2 < first.sent < 3 * 1024**2 + 2_000
    assert second.sent == 0
    assert 9 < third.sent < 1_000  # the file, and the two folders that lead to it


async def test_nobody_learns_what_another_tenant_has_sent(broker: Broker, tmp_path: Path) -> None:
    packed = pack(Project(folder=str(make_project(tmp_path / "project"))), LIMIT)
    alice, bob = (connection_of(broker, tmp_path, tenant) for tenant in ("alice", "bob"))
    async with client_of(broker, tmp_path, "bob") as client:
        try:
            size = await sending.send_project(alice, packed)
            root = packed.project.sha256
            request = projects_pb2.FindMissingObjectsRequest(sha256=[root])
            assert list((await alice.call(alice.projects.FindMissingObjects, request)).sha256) == []
            assert list((await bob.call(bob.projects.FindMissingObjects, request)).sha256) == [root]
            with pytest.raises(InvalidSpecError, match="is not here; submit the folder again"):
                await client.submit(spec_of(tmp_path, project=Project(root)))
            assert await sending.send_project(bob, packed) == size
        finally:
            await alice.close()
            await bob.close()


async def test_what_leads_to_nothing_is_asked_for_again(broker: Broker, tmp_path: Path) -> None:
    """Whatever removed an object of a project whose root is still there: submitting again mends it."""
    folder = make_project(tmp_path / "project")
    async with (
        ScriptedAgent(node_token(tmp_path / "broker")).connected(broker.nodes_address),
        client_of(broker, tmp_path) as client,
    ):
        await client.submit(spec_of(folder))
        (tmp_path / "broker" / "projects" / "alice" / sha256_of(b"WIDTH = 3")).unlink()
        again = Bytes()
        await client.submit(spec_of(folder, endpoint="again"), progress=again)
    assert again.sent == len(b"WIDTH = 3")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([("ab" * 32, 3, b"abc")], "is not what was announced: its SHA-256 differs"),
        ([("no hash", 3, b"abc")], "'no hash' is not a SHA-256"),
        ([("../../etc/passwd", 3, b"abc")], "is not a SHA-256"),
        ([(sha256_of(b"abc"), 2, b"abc")], "has more bytes than were announced"),
        ([(sha256_of(b"abc"), 3, b"ab")], "ends 1 bytes too early"),
        ([(sha256_of(b"abc"), 2**63, b"abc")], "has no more room for projects"),
        ([("ab" * 32, 2**21, bytes(2**20 + 1))], "pieces: have more than 1048576 bytes together"),
    ],
)
async def test_lies_about_objects_are_refused_and_leave_nothing(
    broker: Broker, tmp_path: Path, pieces: list[tuple[str, int, bytes]], message: str
) -> None:
    metadata = (("authorization", f"Bearer {tenant_token(tmp_path / 'broker')}"),)
    async with grpc.aio.insecure_channel(broker.broker_address) as channel:
        stub = projects_pb2_grpc.ProjectsServiceStub(channel)
        sent = [projects_pb2.ObjectPiece(sha256=name, size_bytes=size, data=data) for name, size, data in pieces]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SendObjects(iter([projects_pb2.SendObjectsRequest(pieces=sent)]), metadata=metadata, timeout=90)
    assert message in (caught.value.details() or "")
    assert list((tmp_path / "broker" / "projects" / "alice").iterdir()) == []


async def test_nobody_without_a_token_sends_anything(broker: Broker) -> None:
    async with grpc.aio.insecure_channel(broker.broker_address) as channel:
        stub = projects_pb2_grpc.ProjectsServiceStub(channel)
        for call in (stub.SendObjects(iter([]), timeout=90), stub.FindMissingObjects(
            projects_pb2.FindMissingObjectsRequest(), timeout=20
        )):  # fmt: skip
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_break_in_the_middle_costs_what_was_not_whole(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(200):  # two batches of what is made durable together
        (folder / f"{number}.bin").write_bytes(os.urandom(30_000))
    packed = pack(Project(folder=str(folder)), LIMIT)
    connection = connection_of(broker, tmp_path)
    send = connection.send
    calls, kept = 0, tmp_path / "broker" / "projects" / "alice"

    async def breaking(method: Any, requests: Any, *, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await send(method, requests, seconds=seconds)
            return

        async def some() -> AsyncIterator[projects_pb2.SendObjectsRequest]:
            messages = [request async for request in requests]
            for request in messages[:-1]:
                yield request
            await until(lambda: sum(path.suffix != ".part" for path in kept.iterdir()) >= 128, seconds=90)
            raise UnavailableError("the connection broke")

        await send(method, some(), seconds=seconds)  # type: ignore[arg-type]

    connection.send = breaking  # type: ignore[method-assign]
    try:
        sent = await sending.send_project(connection, packed)
        assert await sending.send_project(connection, packed, whole=True) == 0
    finally:
        await connection.close()
    assert calls == 2
    assert sent < 2 * packed.size_bytes - 120 * 30_000


async def test_a_file_that_changes_while_it_is_sent_is_said(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(known_hashes, "RESTED_SECONDS", -3600.0)
    folder = make_project(tmp_path / "project")
    packed = pack(Project(folder=str(folder)), LIMIT)
    connection = connection_of(broker, tmp_path)
    try:
        for content in (b"x", b"y" * 4 * 1024**2, os.urandom(3 * 1024**2)):
            (folder / "data.bin").write_bytes(content)
            with pytest.raises(InvalidSpecError, match="a file changed while it was being sent"):
                await sending.send_project(connection, packed)
            assert not list((tmp_path / "cache" / "tiercel" / "hashes").iterdir()), "the next submit reads all"
        (folder / "data.bin").unlink()
        with pytest.raises(InvalidSpecError, match=r"data\.bin cannot be read"):
            await sending.send_project(connection, packed)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": ("python", "trian.py")}, "command: there is no file 'trian.py' in the project; did you mean"),
        ({"command": ("./train.py",)}, "command: 'train.py' in the project may not be executed"),
        ({"command": ()}, "script: is missing; give a training script"),
        ({"module": "pkg.model"}, "command: is given beside a module"),
        ({"project": None}, "command: needs a project or an image"),
    ],
)
async def test_a_project_that_cannot_start_is_refused_before_anything_runs(
    broker: Broker, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = make_project(tmp_path / "project")
    async with client_of(broker, tmp_path) as client:
        with pytest.raises(InvalidSpecError) as caught:
            await client.submit(spec_of(folder, **changes))
        assert caught.value.message.startswith(message)
        assert await client.list_jobs() == ()


async def test_the_broker_itself_refuses_a_command_that_starts_nothing(broker: Broker, tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project")
    packed = pack(Project(folder=str(folder)), LIMIT)
    connection = connection_of(broker, tmp_path)
    await sending.send_project(connection, packed)
    await connection.close()
    async with client_of(broker, tmp_path) as client:
        with pytest.raises(InvalidSpecError, match=r"there is no file 'trian\.py' in the project"):
            await client.submit(spec_of(folder, ("python", "trian.py"), project=Project(packed.project.sha256)))


async def test_a_project_over_the_brokers_limit_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project")
    async with running_broker(tmp_path / "broker", project_bytes=2_000_000) as broker:
        async with client_of(broker, tmp_path) as client:
            with pytest.raises(
                InvalidSpecError, match=r"the 1\.91 MiB that may be sent; the largest are data\.bin \(3 MiB\)"
            ):
                await client.submit(spec_of(folder))
        # One that counts otherwise is refused by the broker itself.
        packed = pack(Project(folder=str(folder)), LIMIT)
        connection = connection_of(broker, tmp_path)
        await sending.send_project(connection, packed)
        await connection.close()
        async with client_of(broker, tmp_path) as client:
            with pytest.raises(InvalidSpecError, match=r"more than the 1\.91 MiB that may be sent;"):
                await client.submit(spec_of(folder, project=Project(packed.project.sha256)))


async def test_a_tenant_has_so_much_room_and_no_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker", tenant_projects_bytes=4_000_000) as broker:
        for tenant in ("alice", "bob"):  # one's files take nothing of the other's room
            async with client_of(broker, tmp_path, tenant) as client:
                await client.submit(spec_of(make_project(tmp_path / f"{tenant}-one"), endpoint=tenant))
                with pytest.raises(QuotaExceededError, match="has no more room for projects"):
                    await client.submit(spec_of(make_project(tmp_path / f"{tenant}-two"), endpoint="two"))


def test_what_no_job_needs_is_removed_and_the_rest_stays_whole(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "store")
    one, two = (pack(Project(folder=str(make_project(tmp_path / name))), LIMIT) for name in ("one", "two"))
    for packed in (one, two):
        with store.receive("alice") as receiver:
            for name, (path, size) in packed.files.items():
                receiver.write(name, size, path.read_bytes())
            for name, listing in packed.folders.items():
                receiver.write(name, len(listing), listing)
            receiver.finish()
    assert store.unused("alice", [], unused_seconds=3600.0) == {}
    unused = store.unused("alice", [one.project.sha256], unused_seconds=0.0)
    assert 3 * 1024**2 <= sum(unused.values()) < 3 * 1024**2 + 1_000  # the other one's data; they share the rest
    store.remove("alice", unused, [two.project.sha256])  # somebody began to need it
    assert store.check("alice", two.project.sha256)
    store.remove("alice", unused, [])
    assert "pkg/model.py" in store.check("alice", one.project.sha256)
    with pytest.raises(InvalidSpecError):
        store.check("alice", two.project.sha256)


def test_what_is_not_there_is_said_to_whoever_asks_the_store(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path)
    with pytest.raises(NotFoundError):
        list(store.pieces("alice", ["../alice"]))
    with pytest.raises(InvalidSpecError, match="is not a SHA-256"):
        store.missing("alice", ["../../x"])


async def test_a_job_whose_project_is_gone_is_not_resumed_in_vain(broker: Broker, tmp_path: Path) -> None:
    async with client_of(broker, tmp_path) as client:
        job = await client.submit(spec_of(make_project(tmp_path / "project")))
        await client.cancel_job(job.id)
        for path in (tmp_path / "broker" / "projects" / "alice").iterdir():
            path.unlink()
        with pytest.raises(InvalidSpecError, match=r"project: the object .* is not here; submit the folder again"):
            await client.resume_job(job.id)
        await client.submit(spec_of(tmp_path / "project", endpoint="again"))  # the same folder: its objects are back
        assert not (await client.resume_job(job.id)).state.is_final


async def test_uploads_leave_room_for_the_brokers_own_files(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_project(tmp_path / "project")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=RESERVE_BYTES + 1_000_000))
    async with client_of(broker, tmp_path) as client:
        with pytest.raises(CannotWriteError, match="no space left"):
            await client.submit(spec_of(folder))
        (folder / "data.bin").write_bytes(b"small")
        await client.submit(spec_of(folder))


async def test_a_tenant_sends_a_few_projects_at_a_time_and_another_is_not_in_its_way(
    broker: Broker, tmp_path: Path
) -> None:
    async with grpc.aio.insecure_channel(broker.broker_address) as channel:
        stub = projects_pb2_grpc.ProjectsServiceStub(channel)

        def metadata(tenant: str) -> tuple[tuple[str, str], ...]:
            return (("authorization", f"Bearer {tenant_token(tmp_path / 'broker', tenant)}"),)

        held = [stub.SendObjects(metadata=metadata("alice"), timeout=60) for _ in range(UPLOADS_OF_A_TENANT)]
        piece = projects_pb2.ObjectPiece(sha256="ab" * 32, size_bytes=2, data=b"x")
        for call in held:
            await call.write(projects_pb2.SendObjectsRequest(pieces=[piece]))
        folder = tmp_path / "broker" / "projects" / "alice"
        await until(lambda: folder.exists() and len(list(folder.iterdir())) == UPLOADS_OF_A_TENANT)
        refused = stub.SendObjects(metadata=metadata("alice"), timeout=60)
        assert await refused.code() is grpc.StatusCode.UNAVAILABLE
        other = stub.SendObjects(metadata=metadata("bob"), timeout=60)
        await other.done_writing()
        await other
        for call in held:
            call.cancel()
        await until(lambda: not list(folder.iterdir()))
        again = stub.SendObjects(metadata=metadata("alice"), timeout=60)
        await again.done_writing()
        await again
