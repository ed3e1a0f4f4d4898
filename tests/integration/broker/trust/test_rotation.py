"""Certificates change while the doors stay open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import grpc
import pytest

from testing.brokers import running_broker
from testing.clock import ManualClock
from testing.joined_agents import JoinedAgent
from testing.membership import WIDE, joined, open_as
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.membership import join
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.trust.authority import CERTIFICATE_LIFE, Authority
from tiercel.broker.trust.doors import OperatorsIdentity, OwnIdentity, server_credentials
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.core.errors import UnavailableError
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, read_chain, to_pem
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.pinning import shown_by
from tiercel.core.trust.trust import Trust
from tiercel.trainer_agent.connection.address import DialError
from tiercel.trainer_agent.connection.dialling import JoinedDialler
from tiercel.v1 import jobs_pb2

LIFE = CERTIFICATE_LIFE.total_seconds()


@contextlib.asynccontextmanager
async def door(shown: OwnIdentity | OperatorsIdentity) -> AsyncIterator[str]:
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", server_credentials(shown))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def serial_at(address: str) -> int:
    return (await asyncio.to_thread(shown_by, address))[0].serial_number


async def test_the_brokers_own_certificate_is_issued_anew_without_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    authority = Authority.create(datetime.fromtimestamp(clock.now(), UTC))
    async with door(OwnIdentity(KeptAuthority(tmp_path, authority), [], clock.now)) as address:
        first = await serial_at(address)
        clock.advance(0.6 * LIFE)
        assert await serial_at(address) == first
        clock.advance(0.1 * LIFE)
        second = await serial_at(address)
        assert second != first
        assert await serial_at(address) == second


async def test_a_certificate_by_a_clock_far_ahead_is_not_shown_on_once_that_is_set(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    authority = Authority.create(datetime.fromtimestamp(clock.now(), UTC))
    clock.set_forward(LIFE)
    own = OwnIdentity(KeptAuthority(tmp_path, authority), [], clock.now)
    assert own.current().certificate.not_valid_before_utc > datetime.now(UTC)
    clock.set_forward(-LIFE)
    assert own.current().certificate.not_valid_before_utc <= datetime.now(UTC)


async def test_the_operators_files_are_read_again_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.now(UTC)
    company = Authority.create(now)
    files = [tmp_path / name for name in ("certificate.pem", "key.pem", "ca.pem")]
    files[2].write_bytes(to_pem(company.certificate))

    def put(identity: Identity) -> int:
        # The key first, as those do who renew by themselves: for a moment the two do not belong together.
        files[1].write_bytes(identity.key)
        files[0].write_bytes(to_pem(identity.certificate))
        return identity.certificate.serial_number

    first = put(company.issue_to_broker([], now))
    async with door(OperatorsIdentity(*files)) as address:
        assert await serial_at(address) == first
        second = put(company.issue_to_broker([], now))
        assert await serial_at(address) == second
        files[1].write_bytes(b"half")
        assert [await serial_at(address) for _ in range(3)] == [second] * 3
        assert caplog.text.count("the certificate of before is shown on") == 1
        third = put(company.issue_to_broker([], now))
        assert await serial_at(address) == third


@pytest.mark.parametrize(("shift", "why"), [(2 / 30, "is not good yet"), (-1.1, "has run out")])
async def test_where_two_clocks_differ_all_who_dial_are_told_so(
    shift: float, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As if this machine's clock were two days behind, or more than a month ahead, in parts of a certificate's life."""
    now = datetime.now(UTC)
    authority = Authority.create(now - 2 * CERTIFICATE_LIFE)
    there = ManualClock((now + shift * CERTIFICATE_LIFE).timestamp())
    async with door(OwnIdentity(KeptAuthority(tmp_path, authority), [], there.now)) as address:
        connection = await Connection.open(address, "t" * 30, ClientOptions(), Trust(pin=authority.pin))
        with pytest.raises(UnavailableError, match=f"{why} by this machine's clock"):
            await connection.call(connection.stub.ListJobs, jobs_pb2.ListJobsRequest())
        await connection.close()
        with pytest.raises(UnavailableError, match=f"{why} by this machine's clock"):
            await join(address, JoinToken.draw(authority.pin), "n2")
        key = make_key()
        chain = authority.chain_of(authority.issue_to_node("n2", key.public_key(), now))
        agent = JoinedAgent("n2", tmp_path / "n2", lambda: address, Identity(key_to_pem(key), chain))
        async with agent.running():
            await until(lambda: f"{why} by this machine's clock" in caplog.text)
    assert "join again" not in caplog.text


async def test_a_node_renews_its_certificate_while_it_works(tmp_path: Path) -> None:
    file = tmp_path / "identity.pem"
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        first = await joined(broker, tmp_path / "b", "n2")
        file.write_bytes(first.to_file())
        address = broker.addresses["nodes_tls"]
        later = JoinedDialler(lambda: address, file)
        later.heed([Authority.from_file((tmp_path / "b" / "authority.key").read_bytes()).pin], -0.8 * LIFE)
        agent = ScriptedAgent("", "n2", open_channel=lambda _: later.open(()))
        async with agent.connected(address):
            keeping = asyncio.ensure_future(later.keep_fresh())
            await until(lambda: file.read_bytes() != first.to_file())
            keeping.cancel()
            fresh = Identity.from_file(file.read_bytes())
            assert fresh.key != first.key
            assert file.stat().st_mode & 0o777 == 0o600
            assert agent.ending is None
        # Both count until they run out: an agent that was killed on the way has the earlier one.
        for identity in (first, fresh):
            again = ScriptedAgent("", "n2", open_channel=partial(open_as, identity=identity))
            again.instance = agent.instance  # the broker may not know yet that the stream before is gone
            async with again.connected(address):
                assert again.ending is None


async def test_a_node_with_a_clock_far_ahead_renews_its_certificate_by_the_brokers_clock(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "b", listen=WIDE, heartbeat_seconds=0.1) as broker:
        first = await joined(broker, tmp_path / "b", "n2")
        ahead = CERTIFICATE_LIFE * 25 / 30
        agent = JoinedAgent("n2", tmp_path / "n2", lambda: broker.addresses["nodes_tls"], first, ahead)
        async with agent.running():
            await until(lambda: agent.was_answered(5))
        assert (agent.identity, agent.welcomes) == (first, 1)


async def test_a_node_whose_certificate_is_of_no_use_says_so_before_it_dials(tmp_path: Path) -> None:
    file = tmp_path / "identity.pem"
    dialler = JoinedDialler(lambda: "127.0.0.1:1", file, lambda: datetime.now(UTC) + timedelta(seconds=2 * LIFE))
    with pytest.raises(DialError, match="join again"):
        dialler.open(())
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        identity = await joined(broker, tmp_path / "b", "n2")
        file.write_bytes(identity.to_file())
        with pytest.raises(DialError, match=r"ran out at .*, by this machine's clock"):
            dialler.open(())
        file.write_bytes(Identity(identity.key, to_pem(read_chain(identity.chain)[0])).to_file())
        with pytest.raises(DialError, match="who vouches for the broker"):
            dialler.open(())
