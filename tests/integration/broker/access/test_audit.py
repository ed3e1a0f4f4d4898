"""The record of who changed what: of a real broker, in its real database, and whoever meddles with either."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from testing.brokers import Tenant, broker_process, running_broker, tenant_of, tenant_token
from testing.clock import ManualClock
from testing.membership import WIDE, joined, open_as, operator_of, removed
from testing.scripted_agent import ScriptedAgent
from tiercel import Client
from tiercel.broker.access import audit as audits
from tiercel.broker.access.audit import Audit, Subject
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.cli import app
from tiercel.broker.client.audit import read_audit
from tiercel.broker.client.membership import create_join_token, join
from tiercel.broker.client.tokens import create_token
from tiercel.broker.server import Broker
from tiercel.broker.store.audit import AuditStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.audit import AuditRow, AuditStart, ChainCheck, calls_of
from tiercel.core.errors import CannotWriteError, NotAuthenticatedError, UnavailableError
from tiercel.core.roles import Role
from tiercel.core.trust.join_token import JoinToken

SUBJECT = Subject("t1", "alice", "submitter", "JobsService.CancelJob", "127.0.0.1", "job")
SECRET = "hunter2-and-no-more"


async def told(broker: Broker, state_dir: Path) -> tuple[AuditStart, list[AuditRow]]:
    async with operator_of(broker, state_dir) as operator:
        found = [each async for each in read_audit(operator)]
    assert isinstance(found[0], AuditStart)
    return found[0], [row for row in found if isinstance(row, AuditRow)]


def problem_of(start: AuditStart, rows: list[AuditRow]) -> str:
    found = ChainCheck(start)
    for row in rows:
        found.add(row)
    return found.problem


def short(rows: list[AuditRow]) -> list[tuple[str, str, str]]:
    return [(row.method.partition(".")[2], row.caller, row.outcome) for row in calls_of(rows)]


async def refused(call: object) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code()


async def test_changes_and_refusals_are_written_down_and_reads_are_not(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
        tenant_of(broker.broker_address, "guessed-and-guessed") as stranger,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as client,
    ):
        async with operator_of(broker, tmp_path) as operator:
            text, issued = await create_token(operator, "eyes", tenant="alice", role=Role.VIEWER, seconds=0)
        job = await alice.submit()
        await client.secrets.set("A_KEY", SECRET)
        async with tenant_of(broker.broker_address, text) as viewer:
            await viewer.get(job.id)
            await viewer.nodes()
            assert await refused(viewer.cancel(job.id)) is grpc.StatusCode.PERMISSION_DENIED
        for call in (bob.get(job.id), bob.cancel(job.id), bob.output(job.id)):
            assert await refused(call) is grpc.StatusCode.NOT_FOUND
        assert await refused(stranger.nodes()) is grpc.StatusCode.UNAUTHENTICATED
        await alice.cancel(job.id)
    async with running_broker(tmp_path) as broker, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
        await alice.cancel(job.id)
        start, rows = await told(broker, tmp_path)
    assert (start, problem_of(start, rows)) == (AuditStart(), "")
    assert sorted(short(rows)[:-1]) == sorted(
        [
            ("CreateToken", "operator.token", "done"),
            ("SubmitJob", "tenants.toml", "done"),
            ("SetSecret", "tenants.toml", "done"),
            ("CancelJob", issued.id, "not_allowed"),
            ("GetJob", "tenants.toml", "not_found"),
            ("CancelJob", "tenants.toml", "not_found"),
            ("StreamLogs", "tenants.toml", "not_found"),
            ("ListNodes", "", "not_authenticated"),
            ("CancelJob", "tenants.toml", "done"),
        ]
    )
    by_method = {row.method: row for row in rows if row.outcome == "done"}
    assert by_method["JobsService.SubmitJob"].object == job.id
    assert by_method["TokensService.CreateToken"].object == issued.id
    assert by_method["SecretsService.SetSecret"].object == "A_KEY"
    assert {row.tenant for row in rows if row.outcome == "not_found"} == {"bob"}
    assert {row.peer for row in rows} == {"127.0.0.1"}
    kept = repr(rows)
    assert not [word for word in (SECRET, text.split("_")[3], "guessed", tenant_token(tmp_path)) if word in kept]


async def test_machines_that_join_and_that_are_no_members_any_more_are_written_down(tmp_path: Path) -> None:
    async with running_broker(tmp_path, listen=WIDE) as broker:
        identity = await joined(broker, tmp_path, "n2")
        async with operator_of(broker, tmp_path) as operator:
            line = await create_join_token(operator, "n3", 60.0, ["gpu3.example", "models.example"])
        token = JoinToken.parse(line.token)
        await join(line.address, token, "n3")
        with pytest.raises(NotAuthenticatedError, match="was used already"):
            await join(line.address, token, "n3")
        await removed(broker, tmp_path, "n2")
        agent = ScriptedAgent("", "n2", open_channel=lambda address: open_as(address, identity))
        await agent.run(broker.addresses["nodes_tls"])
        assert agent.ending is not None
        assert agent.ending[0] is grpc.StatusCode.UNAUTHENTICATED
    async with running_broker(tmp_path) as broker:
        _, rows = await told(broker, tmp_path)
    assert [(row.method, row.object, row.outcome) for row in calls_of(rows)] == [
        ("MembershipService.CreateJoinToken", "", "done"),
        ("MembershipService.Join", "n2", "done"),
        ("MembershipService.CreateJoinToken", "n3 gpu3.example models.example", "done"),
        ("MembershipService.Join", "n3 gpu3.example models.example", "done"),
        ("MembershipService.Join", "n3", "not_authenticated"),
        ("MembershipService.RemoveNode", "n2", "done"),
        ("NodesService.Connect", "", "not_authenticated"),
    ]
    assert token.secret not in repr(rows)


async def test_a_broker_that_is_killed_in_the_middle_leaves_a_chain_that_fits(tmp_path: Path) -> None:
    async with (
        broker_process(tmp_path) as (process, address, _, _),
        tenant_of(address, tenant_token(tmp_path)) as alice,
    ):
        calls = [asyncio.create_task(alice.submit(f"e{number}")) for number in range(20)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        process.kill()
        answered = [
            one.id for one in await asyncio.gather(*calls, return_exceptions=True) if not isinstance(one, BaseException)
        ]
    async with running_broker(tmp_path) as broker:
        start, rows = await told(broker, tmp_path)
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            there = [(await alice.get(job_id)).id for job_id in answered]
    assert problem_of(start, rows) == ""
    assert there == answered
    # What was done was begun to be done, in the record.
    assert len([row for row in rows if row.outcome == "begun"]) >= len(answered) > 0


async def test_a_thousand_wrong_tokens_are_a_few_rows_and_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "COUNTED_SECONDS", 0.2)
    async with running_broker(tmp_path) as broker, grpc.aio.insecure_channel(broker.broker_address) as channel:
        guesses = [Tenant(channel, f"guess-{number}-0123456789").nodes() for number in range(1_000)]
        assert {await refused(guess) for guess in guesses} == {grpc.StatusCode.UNAUTHENTICATED}

        async def accounted() -> int:
            _, rows = await told(broker, tmp_path)
            counted = [int(row.object.split()[0]) for row in rows if row.outcome == "counted"]
            return sum(counted) + sum(row.outcome == "not_authenticated" for row in rows)

        async with asyncio.timeout(90):
            while await accounted() < 1_000:  # noqa: ASYNC110 - there is no event in another's database
                await asyncio.sleep(0.05)
        start, rows = await told(broker, tmp_path)
        assert sum(row.outcome == "not_authenticated" for row in rows) < 300
        assert problem_of(start, rows) == ""


async def test_a_change_that_cannot_be_written_down_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AuditStore.append

    async def full(_self: AuditStore, _rows: object) -> None:
        raise CannotWriteError("no space left; nothing was changed. Make room and try again.")

    async with running_broker(tmp_path) as broker, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
        job = await alice.submit("first")
        monkeypatch.setattr(AuditStore, "append", full)
        assert await refused(alice.submit("second")) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await refused(alice.cancel(job.id)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [endpoint.name for endpoint in await alice.endpoints()] == ["first"]
        assert (await alice.get(job.id)).state == job.state
        monkeypatch.setattr(AuditStore, "append", real)
        await alice.submit("third")
        # How the first one ended was told to a full disk, perhaps; it is not lost.
    async with running_broker(tmp_path) as broker:
        start, rows = await told(broker, tmp_path)
    assert [one[2] for one in short(rows)] == ["done", "done"]
    assert problem_of(start, rows) == ""


async def test_many_changes_at_once_are_one_chain(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
        await asyncio.gather(*(alice.submit(f"e{number}") for number in range(20)))
    async with running_broker(tmp_path) as broker:
        start, rows = await told(broker, tmp_path)
        assert problem_of(start, rows) == ""
        assert [one[2] for one in short(rows)] == ["done"] * 20


async def _written(folder: Path, count: int, most: int) -> AsyncIterator[tuple[AuditStart, list[AuditRow]]]:
    async with Store(sqlite_url(folder / "broker.sqlite")) as store:
        kept = AuditStore(store, most)
        audit = Audit(kept, ManualClock())
        await audit.start()
        writer = asyncio.create_task(audit.run())
        for _ in range(count):
            audit.end(await audit.begin(SUBJECT), SUBJECT, "done")
        await audit.flush()
        yield await kept.start(), await kept.page(0, 0.0, 10_000)
        writer.cancel()


async def test_there_is_a_bound_and_the_chain_goes_on_behind_it(tmp_path: Path) -> None:
    for _ in range(2):  # the second time as after a restart
        async for start, rows in _written(tmp_path, 30, 20):
            assert len(rows) <= 20
            assert problem_of(start, rows) == ""
    assert start.number + len(rows) == 120


async def test_somebody_who_writes_rows_beside_the_broker_is_found_and_stops_nothing(tmp_path: Path) -> None:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        kept = AuditStore(store)
        audit = Audit(kept, SystemClock())
        await audit.start()
        writer = asyncio.create_task(audit.run())
        await audit.begin(SUBJECT)
        with sqlite3.connect(tmp_path / "broker.sqlite") as other:
            other.execute(
                "INSERT INTO audit_rows SELECT 2, at, call, 'x', '', '', '', '', 'done', '', '' FROM audit_rows"
            )
        with pytest.raises(UnavailableError, match="written to by somebody else"):
            await audit.begin(SUBJECT)
        assert await audit.begin(SUBJECT) == 3
        assert "row 2 does not go with" in problem_of(await kept.start(), await kept.page(0, 0.0, 100))
        writer.cancel()


def test_the_operator_reads_and_checks_it_from_the_command_line(tmp_path: Path) -> None:
    async def commands() -> None:
        async with running_broker(tmp_path) as broker:
            (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))
            async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
                job = await alice.submit()
                await alice.cancel(job.id)

            async def run(*words: str) -> Result:
                arguments = ["audit", *words, "--state-dir", str(tmp_path)]
                return await asyncio.to_thread(CliRunner().invoke, app, arguments)

            listed = json.loads((await run("--json", "--since", "1h")).stdout)
            assert [(each["method"], each["tenant"]) for each in listed] == [
                ("JobsService.SubmitJob", "alice"),
                ("JobsService.CancelJob", "alice"),
            ]
            assert "JobsService.CancelJob" in (await run()).stdout
            assert json.loads((await run("--json", "--since", "2100-01-01")).stdout) == []
            assert (await run("--since", "yesterday")).exit_code == 2
            assert "none changed and none missing" in (await run("--check")).stdout
            with sqlite3.connect(tmp_path / "broker.sqlite", timeout=90) as meddler:
                meddler.execute("UPDATE audit_rows SET caller = 'somebody else' WHERE number = 1")
            checked = await run("--check")
            assert (checked.exit_code, "row 2 does not go with" in checked.stderr) == (1, True)

    asyncio.run(commands())
