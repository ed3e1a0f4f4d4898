"""The embedded server's door for other machines: what gets through, and what strangers can make it do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import aiomqtt
import pytest

from testing.clock import ManualClock
from testing.events import job_event, state_event
from testing.membership import WIDE
from testing.mqtt import TENANCY, mosquitto_command, subscribed
from testing.until import until
from tiercel.broker.progress import encryption
from tiercel.broker.progress.door import Place, Rooms
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.encryption import HandshakeLimits
from tiercel.broker.progress.subscriber import SubscriberLimits
from tiercel.broker.trust.authority import CERTIFICATE_LIFE, Authority
from tiercel.broker.trust.doors import OwnIdentity
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import ProgressMade, StateChanged
from tiercel.core.jobs import JobState
from tiercel.core.trust.certificates import Identity, to_pem

ROOMS = Rooms(unknown=8, unknown_seconds=60.0, of_a_tenant=4, in_all=6)
KNOCKING = HandshakeLimits(of_an_address=1000, in_all=1000)
OLD = 0.7 * CERTIFICATE_LIFE.total_seconds()
"""Age at which a certificate is good, and due to be renewed."""
ELSEWHERE = "127.0.0.3"


@dataclass(frozen=True)
class Doors:
    """A server with both of its doors."""

    broker: EmbeddedMqttBroker
    authority: Authority
    clock: ManualClock

    @property
    def port(self) -> int:
        return int(self.broker.wide_address.rpartition(":")[2])

    @property
    def loopback_port(self) -> int:
        return int(self.broker.address.rpartition(":")[2])

    def trusting(self, *others: Authority) -> ssl.SSLContext:
        authorities = others or (self.authority,)
        return ssl.create_default_context(cadata=to_pem(*(each.certificate for each in authorities)).decode())

    def client(self, tenant: str = "default", token: str = "") -> aiomqtt.Client:
        password = token or TENANCY.tenants[tenant].token
        return aiomqtt.Client(WIDE, self.port, username=tenant, password=password, tls_context=self.trusting())

    async def raw(
        self, octets: bytes = b"", source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Encrypted, but not yet known."""
        reader, writer = await asyncio.open_connection(
            WIDE, self.port, ssl=self.trusting(), local_addr=(source, 0), ssl_shutdown_timeout=0.1
        )
        writer.write(octets)
        return reader, writer

    async def mute(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connected, and not even beginning to encrypt."""
        return await asyncio.open_connection(WIDE, self.port)


@contextlib.asynccontextmanager
async def doors(
    rooms: Rooms = ROOMS, handshakes: HandshakeLimits = KNOCKING, limits: SubscriberLimits | None = None
) -> AsyncIterator[Doors]:
    clock = ManualClock(time.time() - OLD)
    authority = Authority.create(datetime.fromtimestamp(clock.now(), UTC))
    place = Place(WIDE, 0, "--listen-mqtt-port", OwnIdentity(KeptAuthority(Path(), authority), [WIDE], clock.now))
    broker = EmbeddedMqttBroker(TENANCY, wide=place, rooms=rooms, limits=limits, handshakes=handshakes)
    async with broker:
        yield Doors(broker, authority, clock)


def connect_as(tenant: str, client_id: str) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    body = text("MQTT") + bytes((4, 0xC2, 0, 0)) + text(client_id) + text(tenant) + text(TENANCY.tenants[tenant].token)
    return bytes((0x10, len(body))) + body


async def is_ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(OSError):
        async with asyncio.timeout(90):
            await reader.read()
    return True


async def mosquitto_sub(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code, what arrived, and what it complained of."""
    process = await asyncio.create_subprocess_exec(
        *[mosquitto_command("mosquitto_sub"), *arguments],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await process.communicate()
    return process.returncode, output.decode(), complaint.decode()


@pytest.mark.mosquitto
async def test_mosquitto_sub_reads_its_tenants_news_from_elsewhere_and_no_others(tmp_path: Path) -> None:
    async with doors() as here:
        authority, stranger = tmp_path / "authority.pem", tmp_path / "stranger.pem"
        authority.write_bytes(to_pem(here.authority.certificate))
        stranger.write_bytes(to_pem(Authority.create(datetime.now(UTC)).certificate))
        for tenant in TENANCY.tenants:
            here.broker.publish_nowait(job_event(StateChanged(JobState.RUNNING, "because"), tenant=tenant))
        asking = ["-h", WIDE, "-p", str(here.port), "-v", "-t", "#", "-W", "5"]
        bob = ["-u", "bob", "-P", TENANCY.tenants["bob"].token]
        code, heard, _ = await mosquitto_sub(*asking, *bob, "--cafile", str(authority), "-C", "2")
        assert code == 0
        assert sorted(line.split(" ")[0] for line in heard.splitlines()) == [
            "tiercel/v1/bob/jobs/j1/state",
            "tiercel/v1/broker/presence",
        ]
        tried = {
            "the certificate of another authority": [*bob, "--cafile", str(stranger)],
            "no TLS": bob,
            "no token": ["--cafile", str(authority)],
            "another tenant's token": ["-u", "bob", "-P", "the-token-of-default", "--cafile", str(authority)],
        }
        asking[-1] = "2"
        outcomes = await asyncio.gather(*(mosquitto_sub(*asking, *options) for options in tried.values()))
        for reason, (code, heard, _) in zip(tried, outcomes, strict=True):
            assert (heard, code != 0) == ("", True), reason


async def test_nothing_older_than_tls_1_3_gets_in() -> None:
    async with doors() as here:
        older = here.trusting()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):  # noqa: PT011 - it is cut off
            await asyncio.open_connection(WIDE, here.port, ssl=older)
        _, writer = await here.raw()
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()


async def test_the_door_for_others_never_opens_in_the_clear() -> None:
    with pytest.raises(InvalidSpecError, match="loopback only"):
        EmbeddedMqttBroker(TENANCY, wide=Place(WIDE, 0, "--listen-mqtt-port"))
    with pytest.raises(InvalidSpecError, match="loopback only"):
        EmbeddedMqttBroker(TENANCY, host="0.0.0.0")


async def test_what_is_told_reaches_both_doors() -> None:
    async with doors() as here, here.client() as far, subscribed(here.loopback_port) as near:
        await far.subscribe("tiercel/v1/default/#", qos=1)
        here.broker.publish_nowait(state_event(JobState.RUNNING))
        await near.wait_message("/state")
        async with asyncio.timeout(90):
            message = await anext(far.messages)
        assert str(message.topic) == "tiercel/v1/default/jobs/j1/state"


async def test_a_certificate_is_renewed_for_the_next_connection_and_the_open_one_goes_on() -> None:
    async with doors() as here, here.client() as before:
        await before.subscribe("tiercel/v1/default/#", qos=1)
        serials = []
        for _ in range(2):
            _, writer = await here.raw()
            serials.append(writer.get_extra_info("peercert")["serialNumber"])
            writer.close()
            here.clock.advance(OLD)
        assert len(set(serials)) == 2
        here.broker.publish_nowait(state_event(JobState.RUNNING))
        async with asyncio.timeout(90):
            assert str((await anext(before.messages)).topic).endswith("/state")


async def test_a_certificate_that_is_of_no_use_is_not_shown_and_one_that_ran_out_is_not_believed() -> None:
    now = datetime.now(UTC)
    authority = Authority.create(now - 2 * CERTIFICATE_LIFE)

    class Shown:
        pin = authority.pin

        def __init__(self) -> None:
            self.identity = authority.issue_to_broker([WIDE], now)

        def current(self) -> Identity:
            return self.identity

    shown = Shown()
    place = Place(WIDE, 0, "--listen-mqtt-port", shown)
    async with EmbeddedMqttBroker(TENANCY, wide=place, handshakes=KNOCKING) as broker:
        here = Doors(broker, authority, ManualClock(0))
        shown.identity = replace(authority.issue_to_broker([WIDE], now), key=b"half of a pair")
        for _ in range(2):
            _, writer = await here.raw()
            writer.close()
        shown.identity = authority.issue_to_broker([WIDE], now - CERTIFICATE_LIFE - timedelta(minutes=1))
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await here.raw()


async def test_a_certificate_that_could_not_be_shown_for_want_of_room_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with doors() as here:
        serials = []

        async def look() -> None:
            _, writer = await here.raw()
            serials.append(writer.get_extra_info("peercert")["serialNumber"])
            writer.close()

        def full(*_: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        await look()
        here.clock.advance(OLD)
        with monkeypatch.context() as patched:
            patched.setattr(encryption, "load_identity", full)
            await look()
            await look()
        await look()
    assert serials[0] == serials[1] == serials[2] != serials[3]
    assert caplog.text.count("is shown on") == 1


async def test_who_does_not_finish_the_handshake_or_does_not_say_who_he_is_is_closed() -> None:
    quick = HandshakeLimits(seconds=0.2, of_an_address=1000, in_all=1000)
    async with doors(replace(ROOMS, unknown_seconds=0.4), quick) as here:
        half, writer = await here.mute()
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a ClientHello begins so
        silent, other = await here.raw()
        assert await is_ended(half)
        assert await is_ended(silent)
        await until(lambda: here.broker.connections == 0)
        writer.close()
        other.close()


async def test_a_crowd_of_strangers_keeps_out_neither_tenants_elsewhere_nor_those_on_this_machine() -> None:
    async with doors() as here, contextlib.AsyncExitStack() as stack:
        for number in range(300):
            _, writer = await here.mute()
            if number % 2:
                writer.write(b"in the clear" * 100)
            stack.callback(writer.close)
        assert here.broker.connections <= ROOMS.unknown
        async with subscribed(here.loopback_port) as subscriber:
            await subscriber.wait_message("broker/presence")
        # One that comes from another address and takes its time keeps its place while the crowd goes on.
        reader, writer = await here.raw(source=ELSEWHERE)
        for _ in range(50):
            _, mute = await here.mute()
            stack.callback(mute.close)
        writer.write(connect_as("default", "slow"))
        async with asyncio.timeout(90):
            assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
        writer.close()


async def test_an_address_that_knocks_too_often_is_cut_off_before_anything_is_computed() -> None:
    async with doors(handshakes=HandshakeLimits(of_an_address=5, in_all=8)) as here:
        knocked = await asyncio.gather(*(here.raw() for _ in range(40)), return_exceptions=True)
        assert 0 < sum(not isinstance(each, BaseException) for each in knocked) <= 10  # two halves of a second at most
        for each in knocked:
            if not isinstance(each, BaseException):
                each[1].close()
        async with subscribed(here.loopback_port) as subscriber:
            await subscriber.wait_message("broker/presence")
        # A moment later it may again.
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await here.raw()
                    writer.close()
                    break
                await asyncio.sleep(0.1)


async def test_tenants_who_fill_one_door_find_the_other_open() -> None:
    async with doors() as here, contextlib.AsyncExitStack() as stack:
        answers = []
        for number in range(6):
            reader, writer = await here.raw(connect_as("default", f"c{number}"))
            stack.callback(writer.close)
            answers.append((await reader.readexactly(4))[3])
        assert answers == [0, 0, 0, 0, 3, 3]
        async with subscribed(here.loopback_port) as subscriber:
            await subscriber.wait_message("broker/presence")


async def test_one_that_was_refused_cannot_go_on_while_its_connection_is_being_closed() -> None:
    """It does not agree that the connection is over, and says who it is once more."""
    async with doors() as here:
        wrong = connect_as("default", "c1").replace(b"the-token-of-default", b"the-token-of-nobodyx")
        _, writer = await here.raw(wrong + connect_as("default", "c2"))
        await until(lambda: here.broker.connections == 0)
        assert not here.broker._doors[1]._known
        writer.close()


async def test_one_that_does_not_read_makes_the_server_hold_no_more_than_so_much() -> None:
    async with doors(limits=SubscriberLimits(buffered_bytes=4096)) as here:
        topic = b"tiercel/v1/default/#"
        subscribe = b"\x82" + bytes((5 + len(topic),)) + b"\x00\x01" + struct.pack(">H", len(topic)) + topic + b"\x00"
        reader, writer = await here.raw(connect_as("default", "c") + subscribe)
        assert (await reader.readexactly(9))[:1] == b"\x20"
        client = cast("asyncio.Transport", writer.transport)
        client.pause_reading()
        large = ProgressMade(1, 0.5, {"x" * 1000: 0.5}, 1.0, 0.0)
        for number in range(15_000):
            here.broker.publish_nowait(job_event(large, sequence=number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        (connection,) = here.broker._doors[1]._known.values()
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 256 * 1024
        assert connection._is_slow
        here.broker.publish_nowait(job_event(StateChanged(JobState.RUNNING, "the latest")))
        client.resume_reading()
        heard = b""
        async with asyncio.timeout(90):
            while b"the latest" not in heard[-4096:]:
                heard += await reader.read(1024 * 1024)
        writer.close()
