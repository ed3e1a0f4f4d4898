"""The encrypted door under whatever may come through it, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

from testing.tls_door import DEADLINE, LOOPS, Caller, Door, Ends, Heard, make_ends, open_door
from tiercel.serving.connections import encrypted_connection, handshake

Check = Callable[[Door], Awaitable[None]]


@pytest.fixture(scope="module")
def ends() -> Ends:
    return make_ends()


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


async def at_door(ends: Ends, check: Check, most: int = 256) -> None:
    async with asyncio.timeout(DEADLINE), open_door(ends, most) as door:
        await check(door)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - of another part of the same loop
        await asyncio.sleep(0.005)


async def whole_talk(door: Door, at_once: int) -> None:
    caller = await door.caller()
    await caller.shake_hands(at_once=at_once)
    await caller.send(caller.records(b"x" * 300), at_once)
    assert await caller.receive(300) == b"x" * 300
    caller.plain.close()


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_records_may_come_byte_by_byte(runner: asyncio.Runner, ends: Ends, at_once: int) -> None:
    runner.run(at_door(ends, partial(whole_talk, at_once=at_once)))


def test_a_request_may_come_with_the_end_of_the_handshake_however_large(runner: asyncio.Runner, ends: Ends) -> None:
    async def check(door: Door) -> None:
        caller, sent = await door.caller(), bytes(range(256)) * 2000
        talk = asyncio.create_task(caller.shake_hands(sent))
        await talk
        assert await caller.receive(len(sent)) == sent
        caller.plain.close()

    runner.run(at_door(ends, check))


def test_the_protocol_above_knows_the_tenant_and_the_peer(runner: asyncio.Runner, ends: Ends) -> None:
    async def check(door: Door) -> None:
        assert await door.echoes("127.0.0.9")
        transport = door.guests[0].transport
        assert transport is not None
        assert ("URI", "spiffe://tiercel.internal/tenant/alice") in transport.get_extra_info("peercert")[
            "subjectAltName"
        ]
        assert transport.get_extra_info("cipher")[1] == "TLSv1.3"
        assert not transport.can_write_eof()

    runner.run(at_door(ends, check))


async def says_garbage(door: Door, caller: Caller) -> None:
    await caller.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert await caller.is_closed()
    assert door.guests == []


async def says_garbage_later(door: Door, caller: Caller) -> None:
    await caller.shake_hands()
    await caller.send(b"\x17\x03\x03\x00\x20" + b"g" * 32)
    assert await caller.is_closed()
    await until(lambda: door.guests[0].happened == ["made", "lost"])


async def sends_a_record_of_17_kib(door: Door, caller: Caller) -> None:
    await caller.shake_hands()
    await caller.send(b"\x17\x03\x03" + struct.pack(">H", 17 * 1024) + b"r" * 17 * 1024)
    assert await caller.is_closed()
    assert door.guests[0].received == b""


async def sends_half_a_record_and_leaves(door: Door, caller: Caller) -> None:
    await caller.shake_hands()
    record = caller.records(b"never whole")
    await caller.send(record[:-3])
    caller.plain.shutdown(socket.SHUT_WR)
    await until(lambda: door.guests)
    await until(lambda: "lost" in door.guests[0].happened)
    assert door.guests[0].happened == ["made", "ended", "lost"]
    assert door.guests[0].received == b""


async def resets(door: Door, caller: Caller) -> None:
    await caller.shake_hands()
    await until(lambda: door.guests)
    caller.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.plain.close()
    await until(lambda: "lost" in door.guests[0].happened)


async def says_a_hello_without_end(door: Door, caller: Caller) -> None:
    with contextlib.suppress(OSError):
        await caller.send(b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + b"h" * (0x4000 - 4))
        for _ in range(10):
            await caller.send(b"\x16\x03\x03\x40\x00" + b"h" * 0x4000)
            await asyncio.sleep(0.01)
    assert await caller.is_closed()


async def speaks_tls_1_2(door: Door, caller: Caller) -> None:
    del caller
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        await (await door.caller(context)).shake_hands()


async def shows_nothing(door: Door, caller: Caller) -> None:
    del caller
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stranger = await door.caller(context)
    # By TLS 1.3 who asks is done before it is known whether it is wanted.
    await stranger.shake_hands(b"let me in")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        await stranger.receive(1)
    assert door.guests == []


@pytest.mark.parametrize(
    "attack",
    [
        says_garbage,
        says_garbage_later,
        sends_a_record_of_17_kib,
        sends_half_a_record_and_leaves,
        resets,
        says_a_hello_without_end,
        speaks_tls_1_2,
        shows_nothing,
    ],
)
def test_what_is_no_tls_costs_its_own_connection_alone(
    runner: asyncio.Runner, ends: Ends, attack: Callable[[Door, Caller], Awaitable[None]]
) -> None:
    async def check(door: Door) -> None:
        caller = await door.caller()
        await attack(door, caller)
        caller.plain.close()
        assert await door.echoes()
        await until(lambda: not door.lobby)
        assert all(guest.happened.count("lost") <= 1 for guest in door.guests)

    runner.run(at_door(ends, check))


def test_who_is_slow_to_say_who_it_is_is_closed(
    runner: asyncio.Runner, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.2)

    async def check(door: Door) -> None:
        silent, slow = await door.caller(), await door.caller()
        with contextlib.suppress(ssl.SSLWantReadError):
            slow.tls.do_handshake()
        hello = slow.outgoing.read()
        with contextlib.suppress(OSError):
            for byte in hello:
                await slow.send(bytes([byte]))
                await asyncio.sleep(0.02)
        assert await slow.is_closed()
        assert await silent.is_closed()
        assert not door.lobby

    runner.run(at_door(ends, check))


def test_strangers_of_one_address_keep_nobody_else_out(runner: asyncio.Runner, ends: Ends) -> None:
    async def check(door: Door) -> None:
        other = await asyncio.open_connection("127.0.0.1", door.port, local_addr=("127.0.0.2", 0))
        many = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(30)]
        await until(lambda: len(door.lobby) == 8)
        assert await door.echoes("127.0.0.3")
        assert "127.0.0.2" in {each.activity().peer for each in door.lobby}
        for _, writer in (other, *many):
            writer.close()

    runner.run(at_door(ends, check, most=8))


def test_steps_of_an_address_with_many_make_others_wait_for_one(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_TURN_SECONDS", 0.0)  # one a turn
    done: list[str] = []

    async def check() -> None:
        turns = handshake.Turns()
        for number in range(50):
            turns.put("many", partial(done.append, f"many {number}"))
        turns.put("one", partial(done.append, "one"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(done) <= 3
        await until(lambda: len(done) == 51)
        turns.put("later", partial(done.append, "later"))
        await until(lambda: len(done) == 52)

    runner.run(check())
    assert done[:3] == ["many 0", "one", "many 1"]
    assert [each for each in done if each.startswith("many")] == [f"many {number}" for number in range(50)]


async def ask_for_ever(caller: Caller) -> None:
    while True:
        await caller.send(caller.records(b"b" * 16_000))


def test_who_never_reads_is_read_no_more_and_closed_in_the_end(
    runner: asyncio.Runner, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encrypted_connection, "SHUTDOWN_SECONDS", 0.02)

    async def check(door: Door) -> None:
        caller = await door.caller()
        await caller.shake_hands(b"more")
        await until(lambda: door.guests)
        guest = door.guests[0]
        transport = guest.transport
        assert transport is not None
        while "paused" not in guest.happened:
            transport.write(b"a" * 100_000)
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() < 1 << 20
        known = len(guest.received)
        # It goes on asking, and nobody listens any more: at some point the kernel takes no more of it either.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask_for_ever(caller), 1.0)
        assert len(guest.received) == known
        transport.close()
        await until(lambda: "lost" in guest.happened)
        caller.plain.close()

    runner.run(at_door(ends, check))


def test_what_was_written_arrives_before_the_end_and_the_end_is_said(runner: asyncio.Runner, ends: Ends) -> None:
    def answer(transport: asyncio.Transport, data: bytes) -> None:
        del data
        transport.write(b"w" * 3_000_000)
        transport.close()
        transport.close()
        transport.write(b"into nothing")

    async def check(door: Door) -> None:
        door.make = partial(Heard, answer)
        caller = await door.caller()
        # What nobody reads any more must not reset what was sent.
        await caller.shake_hands(b"ask" * 10_000)
        assert len(await caller.receive(1 << 30)) == 3_000_000
        assert caller.tls.read(1) == b""  # it was the end by TLS, not the network's alone
        caller.plain.close()
        await until(lambda: "lost" in door.guests[0].happened)

    runner.run(at_door(ends, check))


@pytest.mark.parametrize("answers", [True, False])
def test_the_others_end_is_heard_and_may_be_answered(runner: asyncio.Runner, ends: Ends, *, answers: bool) -> None:
    async def check(door: Door) -> None:
        door.make = partial(Heard, answers_after_end=answers)
        caller = await door.caller()
        await caller.shake_hands()
        with contextlib.suppress(ssl.SSLError):
            caller.tls.unwrap()
        await caller.send(caller.outgoing.read())
        caller.plain.shutdown(socket.SHUT_WR)
        await until(lambda: "ended" in (door.guests[0].happened if door.guests else ()))
        guest = door.guests[0]
        if answers:
            await asyncio.sleep(0.05)  # the end of the network's connection has come, too
            assert guest.transport is not None
            guest.transport.write(b"late")
            guest.transport.close()
            assert await caller.receive(100) == b"late"
        assert await caller.is_closed()
        await until(lambda: guest.happened == ["made", "ended", "lost"])
        caller.plain.close()

    runner.run(at_door(ends, check))


def test_reading_pauses_and_goes_on_with_nothing_lost(runner: asyncio.Runner, ends: Ends) -> None:
    def answer(transport: asyncio.Transport, data: bytes) -> None:
        transport.pause_reading()
        transport.pause_reading()
        transport.write(data)
        asyncio.get_running_loop().call_later(0.001, transport.resume_reading)

    async def check(door: Door) -> None:
        door.make = partial(Heard, answer)
        reader, writer = await door.reader()
        sent = bytes(range(256)) * 4000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()

    runner.run(at_door(ends, check))


def test_a_session_that_is_resumed_after_its_certificate_ran_out_is_refused(runner: asyncio.Runner, ends: Ends) -> None:
    days = 0.0

    async def check() -> None:
        nonlocal days
        import time

        async with open_door(ends, now=lambda: time.time() + days * 86_400) as door:
            first = await door.caller()
            await first.shake_hands(b"x")
            assert await first.receive(1) == b"x"  # the ticket came before it
            session = first.tls.session
            first.plain.close()
            second = await door.caller(session=session)
            await second.shake_hands(b"y")
            assert await second.receive(1) == b"y"
            assert second.tls.session_reused
            second.plain.close()
            days = 2.0
            third = await door.caller(session=session)
            await third.shake_hands(b"z")
            assert await third.receive(1) == b""
            third.plain.close()

    runner.run(check())
