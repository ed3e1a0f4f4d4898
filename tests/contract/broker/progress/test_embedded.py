"""The embedded server: who gets in, who reads what, what a client can make it hold, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from dataclasses import replace

import aiomqtt
import pytest

from testing.clock import ManualClock
from testing.events import job_event, node_event, progress_event, state_event
from testing.mqtt import TENANCY, mosquitto_command, subscribed
from testing.until import until
from tiercel.broker.progress.door import Rooms
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.subscriber import SubscriberLimits
from tiercel.broker.tenancy import Tenancy
from tiercel.core.errors import UnavailableError
from tiercel.core.events import ProgressMade, StateChanged
from tiercel.core.issued_tokens import KIND, IssuedToken, IssuedTokens
from tiercel.core.jobs import JobState
from tiercel.core.people import Person
from tiercel.core.roles import Role
from tiercel.core.tokens import Token, hash_token

MIB = 1024 * 1024
SECRET = StateChanged(JobState.RUNNING, "a secret of default's")
ROOMS = Rooms(unknown=8, unknown_seconds=60.0, of_a_tenant=4, in_all=6, topics=100)


@contextlib.asynccontextmanager
async def serving(
    rooms: Rooms = ROOMS, limits: SubscriberLimits | None = None
) -> AsyncIterator[tuple[EmbeddedMqttBroker, int]]:
    async with EmbeddedMqttBroker(TENANCY, rooms=rooms, limits=limits) as broker:
        yield broker, int(broker.address.rpartition(":")[2])


def packet(first: int, body: bytes) -> bytes:
    """With a length of four octets, which the standard would write shorter and a server takes."""
    length = len(body)
    octets = [(length >> shift) & 0x7F | (0 if shift == 21 else 0x80) for shift in (0, 7, 14, 21)]
    return bytes([first, *octets]) + body


def text(value: str) -> bytes:
    return struct.pack(">H", len(value.encode())) + value.encode()


def connect_as(tenant: str, client_id: str = "raw", keepalive: int = 0) -> bytes:
    token = TENANCY.tenants[tenant].token
    return packet(
        0x10,
        text("MQTT") + bytes((4, 0xC2)) + struct.pack(">H", keepalive) + text(client_id) + text(tenant) + text(token),
    )


async def raw(port: int, octets: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(octets)
    return reader, writer


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection, whatever it says before."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(90):
            await reader.read()
    return True


# --- Who gets in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("username", "password"),
    [
        (None, None),
        ("default", None),
        ("default", "wrong"),
        ("default", "the-token-of-bob"),
        ("", "the-token-of-bob"),
        ("default", "the-token-of-nodes"),
    ],
)
async def test_who_has_no_token_of_that_tenant_is_refused(username: str | None, password: str | None) -> None:
    async with serving() as (_, port):
        with pytest.raises(aiomqtt.MqttError, match=r"[Bb]ad user name or password|code:4|Not authorized"):
            async with aiomqtt.Client("127.0.0.1", port, username=username, password=password):
                pass


async def test_a_token_that_was_given_out_lets_in_until_it_is_good_no_more() -> None:
    clock = ManualClock(1000.0)
    texts = {role: Token.draw(KIND).to_text() for role in (Role.VIEWER, Role.OPERATOR)}
    issued = {
        role: IssuedToken(text.split("_")[2], "t", tenant, role, 1000.0, 2000.0, sha256=hash_token(text))
        for (role, text), tenant in zip(texts.items(), ("bob", ""), strict=True)
    }
    tenancy = Tenancy(TENANCY.tenants, "the-token-of-nodes", now=clock.now, issued=IssuedTokens(issued.values()))
    async with EmbeddedMqttBroker(tenancy) as broker:
        port = int(broker.address.rpartition(":")[2])
        for name, password in (("default", texts[Role.VIEWER]), ("bob", texts[Role.OPERATOR])):
            with pytest.raises(aiomqtt.MqttError):
                async with aiomqtt.Client("127.0.0.1", port, username=name, password=password):
                    pass
        for end in ("revoked", "expired"):
            async with subscribed(port, tenant="bob", token=texts[Role.VIEWER]) as subscriber:
                await subscriber.wait_message("broker/presence")
                if end == "revoked":
                    tenancy.issued.put(replace(issued[Role.VIEWER], revoked_at=clock.now()))
                else:
                    clock.advance(1000.0)
                await until(lambda: broker.connections == 0)
            with pytest.raises(aiomqtt.MqttError):
                async with aiomqtt.Client("127.0.0.1", port, username="bob", password=texts[Role.VIEWER]):
                    pass
            tenancy.issued.put(issued[Role.VIEWER])
        # What runs out is nobody else's.
        async with subscribed(port, tenant="bob") as subscriber:
            await subscriber.wait_message("broker/presence")


async def test_a_token_of_a_provider_is_refused_also_where_it_is_known() -> None:
    tenancy = Tenancy(TENANCY.tenants, "the-token-of-nodes", now=lambda: 1000.0)
    tenancy.people.trust(["key"])
    tenancy.people.put("a.b.c", Person("oidc:ann", Role.SUBMITTER, "bob", "key", 2000.0))
    assert tenancy.find_caller("a.b.c") is not None
    async with EmbeddedMqttBroker(tenancy) as broker:
        port = int(broker.address.rpartition(":")[2])
        with pytest.raises(aiomqtt.MqttError):
            async with aiomqtt.Client("127.0.0.1", port, username="bob", password="a.b.c"):
                pass


@pytest.mark.mosquitto
async def test_mosquitto_sub_without_a_token_hears_nothing() -> None:
    async with serving() as (broker, port):
        broker.publish_nowait(job_event(SECRET))
        process = await asyncio.create_subprocess_exec(
            *[mosquitto_command("mosquitto_sub"), "-p", str(port), "-t", "#", "-W", "20"],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaint = await process.communicate()
    assert output == b""
    assert process.returncode != 0
    assert b"user name" in complaint or b"refused" in complaint.lower()


async def test_a_stranger_with_somebodys_client_id_does_not_disturb_him() -> None:
    token = TENANCY.tenants["default"].token
    async with (
        serving() as (broker, port),
        aiomqtt.Client("127.0.0.1", port, identifier="mine", username="default", password=token) as client,
    ):
        await client.subscribe("tiercel/#", qos=1)
        for name, password in (("default", "wrong"), ("bob", TENANCY.tenants["bob"].token)):
            with contextlib.suppress(aiomqtt.MqttError):
                async with aiomqtt.Client("127.0.0.1", port, identifier="mine", username=name, password=password):
                    pass
        broker.publish_nowait(state_event(JobState.RUNNING))
        async with asyncio.timeout(90):
            async for message in client.messages:
                if str(message.topic).endswith("/state"):
                    break


async def test_the_same_client_of_a_tenant_takes_the_place_of_the_one_before() -> None:
    async with serving() as (broker, port):
        first, writer = await raw(port, connect_as("default"))
        assert await first.readexactly(4) == b"\x20\x02\x00\x00"
        second, other = await raw(port, connect_as("default"))
        assert await second.readexactly(4) == b"\x20\x02\x00\x00"
        assert await is_ended(first)
        await until(lambda: broker.connections == 1)
        writer.close()
        other.close()


async def test_a_will_is_refused_and_never_told() -> None:
    will = aiomqtt.Will("tiercel/v1/bob/jobs/j1/state", b"forged", 1, retain=True)
    token = TENANCY.tenants["default"].token
    async with serving() as (broker, port):
        with pytest.raises(aiomqtt.MqttError):
            async with aiomqtt.Client("127.0.0.1", port, username="default", password=token, will=will):
                pass
        assert list(broker.retained) == ["tiercel/v1/broker/presence"]


# --- Who reads and writes what ----------------------------------------------------------------------------------------


async def test_a_tenant_reads_its_own_topics_and_those_of_nodes_and_broker_only() -> None:
    async with serving() as (broker, port):
        broker.publish_nowait(job_event(SECRET))  # retained before anybody subscribes
        async with subscribed(port, "#") as owner, subscribed(port, "#", tenant="bob") as other:
            await owner.wait_message("/state")
            broker.publish_nowait(replace(job_event(SECRET), job_id="j2"))
            broker.publish_nowait(job_event(SECRET, tenant="bob"))
            broker.publish_nowait(node_event())
            await owner.wait_message("j2/state")
            await other.wait_topics("v1/bob/jobs/j1/state", "/nodes/n1/presence", "/broker/presence")
            # Bob comes again beside a subscription of another for what is retained.
            async with subscribed(port, "tiercel/v1/bob/#", tenant="bob") as again:
                await again.wait_message("/state")
    assert not [topic for topic in [*other.seen_topics(), *again.seen_topics()] if "/default/" in topic]
    assert not [topic for topic in owner.seen_topics() if "/bob/" in topic]


async def test_a_subscription_to_another_tenants_topics_is_refused() -> None:
    async with serving() as (_, port):
        token = TENANCY.tenants["bob"].token
        async with aiomqtt.Client("127.0.0.1", port, username="bob", password=token) as client:
            for topics in ("tiercel/v1/default/#", "tiercel/v1/default/jobs/+/state", "$SYS/#", "other/#", "a#", ""):
                with contextlib.suppress(ValueError):  # the library refuses what is no filter by itself
                    assert [
                        int(code.value) if hasattr(code, "value") else int(code)
                        for code in await client.subscribe(topics, qos=1)
                    ] == [0x80]


@pytest.mark.parametrize("first", [0x30, 0x31, 0x33, 0x35])
async def test_a_state_cannot_be_forged(first: int) -> None:
    """At no QoS, retained or not."""
    async with serving() as (broker, port):
        for topic in ("tiercel/v1/default/jobs/j1/state", "tiercel/v1/broker/presence", "elsewhere"):
            forged = packet(first, text(topic) + b"\x00\x01" + b"forged")
            reader, writer = await raw(port, connect_as("default") + forged)
            assert await is_ended(reader)
            writer.close()
        assert list(broker.retained) == ["tiercel/v1/broker/presence"]


# --- What a client can make it hold -----------------------------------------------------------------------------------


async def test_packets_of_8_mib_are_refused_when_their_length_is_known() -> None:
    async with serving() as (broker, port):
        for first in (0x10, 0x31, 0x82):
            for before in (b"", connect_as("default")):
                # The header alone: that the rest would come is not waited for.
                reader, writer = await raw(port, before + bytes((first,)) + b"\x80\x80\x80\x04")
                assert await is_ended(reader)
                writer.close()
        await until(lambda: broker.connections == 0)


async def test_two_thousand_connections_that_say_nothing_keep_no_tenant_out() -> None:
    async with serving() as (broker, port), contextlib.AsyncExitStack() as stack:
        most = 0
        for _ in range(20):
            mute = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            for _, writer in mute[:50]:
                stack.callback(writer.close)
            for _, writer in mute[50:]:
                writer.close()
            most = max(most, broker.connections)
        assert most <= ROOMS.unknown
        async with subscribed(port) as subscriber:
            await subscriber.wait_message("broker/presence")


async def test_who_does_not_say_who_he_is_is_closed() -> None:
    async with serving(replace(ROOMS, unknown_seconds=0.1)) as (broker, port):
        reader, writer = await raw(port, b"\x10")
        assert await is_ended(reader)
        assert broker.connections == 0
        writer.close()


async def test_one_tenant_cannot_take_all_connections() -> None:
    async with serving() as (_, port), contextlib.AsyncExitStack() as stack:
        for number in range(6):
            reader, writer = await raw(port, connect_as("default", f"c{number}"))
            stack.callback(writer.close)
            answer = await reader.readexactly(4)
            assert answer == (b"\x20\x02\x00\x00" if number < ROOMS.of_a_tenant else b"\x20\x02\x00\x03")
        async with subscribed(port, tenant="bob") as subscriber:
            await subscriber.wait_message("broker/presence")


async def test_who_promised_to_say_something_and_does_not_is_closed() -> None:
    async with serving() as (broker, port):
        reader, writer = await raw(port, connect_as("default", keepalive=1))
        assert await is_ended(reader)
        assert broker.connections == 0
        writer.close()


async def test_subscriptions_are_bounded() -> None:
    async with serving(limits=SubscriberLimits(filters=3)) as (_, port):
        filters = b"".join(text(f"tiercel/v1/default/jobs/j{number}/#") + b"\x01" for number in range(5))
        reader, writer = await raw(port, connect_as("default") + packet(0x82, b"\x00\x07" + filters))
        assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
        assert await reader.readexactly(9) == b"\x90\x07\x00\x07\x01\x01\x01\x80\x80"
        writer.close()


async def test_a_subscriber_that_does_not_read_misses_progress_and_gets_the_latest_of_each_state() -> None:
    limits = SubscriberLimits(buffered_bytes=4096)
    async with serving(limits=limits) as (broker, port):
        subscribe = packet(0x82, b"\x00\x01" + text("tiercel/v1/default/#") + b"\x00")
        reader, writer = await raw(port, connect_as("default") + subscribe)
        assert (await reader.readexactly(9))[:1] == b"\x20"
        (connection,) = broker._doors[0]._known.values()
        assert connection._transport is not None
        large = ProgressMade(1, 0.5, {"x" * 1000: 0.5}, 1.0, 0.0)
        for number in range(15_000):
            broker.publish_nowait(job_event(large, sequence=number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        for number in range(1_000):
            broker.publish_nowait(job_event(StateChanged(JobState.RUNNING, f"reason {number}")))
        assert connection._transport.get_write_buffer_size() < 16 * 1024
        assert len(connection._behind) == 1
        heard = b""
        async with asyncio.timeout(90):
            while b"reason 999" not in heard[-4096:]:
                heard += await reader.read(MIB)
        assert heard.count(b"reason ") < 1_000
        writer.close()


async def test_who_confirms_nothing_is_told_no_more_than_so_much() -> None:
    async with serving(limits=SubscriberLimits(unconfirmed=5)) as (broker, port):
        subscribe = packet(0x82, b"\x00\x01" + text("tiercel/v1/default/#") + b"\x01")
        reader, writer = await raw(port, connect_as("default") + subscribe)
        await reader.readexactly(9)
        for number in range(50):
            broker.publish_nowait(replace(state_event(JobState.RUNNING), job_id=f"j{number:02}"))
        broker.publish_nowait(progress_event(1))
        identifiers = []
        for number in range(50):
            topic = f"tiercel/v1/default/jobs/j{number:02}/state"
            async with asyncio.timeout(90):
                heard = await reader.readuntil(topic.encode())
            (identifier,) = struct.unpack(">H", await reader.readexactly(2))
            assert b"progress" not in heard
            identifiers.append(identifier)
            (connection,) = broker._doors[0]._known.values()
            assert len(connection._unconfirmed) <= 5
            writer.write(packet(0x40, struct.pack(">H", identifier)))
        assert identifiers == list(range(1, 51))
        writer.close()


async def test_topics_are_remembered_up_to_so_many_and_the_longest_unchanged_goes_first() -> None:
    async with serving() as (broker, _):
        for number in range(150):
            broker.publish_nowait(replace(state_event(JobState.RUNNING), job_id=f"j{number}"))
        assert len(broker.retained) == ROOMS.topics
        assert "tiercel/v1/default/jobs/j149/state" in broker.retained


# --- In somebody's event loop -----------------------------------------------------------------------------------------


async def test_a_port_in_use_is_named() -> None:
    async with serving() as (_, port):
        with pytest.raises(UnavailableError, match=f"Port {port} is in use"):
            async with EmbeddedMqttBroker(TENANCY, port=port):
                pass


async def test_it_says_that_it_goes_and_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = asyncio.all_tasks()
    async with contextlib.AsyncExitStack() as stack:
        async with serving() as (_, port):
            _, mute = await asyncio.open_connection("127.0.0.1", port)  # never says CONNECT
            subscriber = await stack.enter_async_context(subscribed(port))
            await subscriber.wait_message("broker/presence", presence="online")
        await subscriber.wait_message("broker/presence", presence="offline")
    mute.close()
    with contextlib.suppress(ConnectionError):
        await mute.wait_closed()
    await until(lambda: not asyncio.all_tasks() - before)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
