"""Another authority takes the place of the broker's, with real doors, real connections of agents, and a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testing.brokers import running_broker, tenant_token
from testing.clock import ManualClock
from testing.joined_agents import JoinedAgent
from testing.membership import WIDE, joined, open_as, operator_of
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel import Client
from tiercel.broker.access.audit import Audit
from tiercel.broker.api.authority import finish_in_time
from tiercel.broker.client.authority import authority_state, finish_rotation, rotate_authority
from tiercel.broker.client.membership import JoinLine, create_join_token, join
from tiercel.broker.client.status import cluster_status
from tiercel.broker.server import Broker
from tiercel.broker.store.audit import AuditStore
from tiercel.broker.store.members import MemberStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.broker.trust.membership import Membership
from tiercel.broker.trust.rotation import KEPT_SECONDS, TENANTS_SECONDS, Rotation
from tiercel.core.authority import AuthorityState
from tiercel.core.errors import (
    CannotWriteError,
    ConflictError,
    NotAuthenticatedError,
    NotFoundError,
    TiercelError,
)
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    is_issued_by,
    make_key,
    make_request,
    pin_of,
    read_chain,
)
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.trust import Trust

START = 1_800_000_000.0


async def state_at(broker: Broker, folder: Path) -> AuthorityState:
    async with operator_of(broker, folder) as operator:
        return await authority_state(operator)


async def rotated(broker: Broker, folder: Path) -> AuthorityState:
    async with operator_of(broker, folder) as operator:
        return await rotate_authority(operator)


async def until_waiting_for(broker: Broker, folder: Path, nodes: tuple[str, ...]) -> None:
    async with asyncio.timeout(90):
        while (await state_at(broker, folder)).waiting != nodes:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.05)


async def can_list(broker: Broker, folder: Path, trust: Trust) -> bool:
    async with Client(broker.addresses["broker_tls"], token=tenant_token(folder), trust=trust) as client:
        return await client.list_jobs() == ()


async def is_not_to_be_ended_yet(broker: Broker, folder: Path) -> None:
    """A rotation that waits for the node n3."""
    async with operator_of(broker, folder) as operator:
        with pytest.raises(ConflictError, match="nodes n3 have no certificate by the new authority yet"):
            await finish_rotation(operator, force=False)
        with pytest.raises(ConflictError, match="under way already"):
            await rotate_authority(operator)
        status = await cluster_status(operator)
        assert [each.what for each in status.problems() if each.about == "authority"] == ["its rotation waits for n3"]


async def both_authorities_are_good(
    broker: Broker, folder: Path, begun: AuthorityState, old_file: Path, old_line: JoinLine
) -> None:
    """What people were given before a rotation, and what they are given now."""
    pins = [Trust(pin=pin) for pin in (begun.earlier_pin, begun.pin)]
    for trust in (*pins, Trust(authority=old_file), Trust(authority=folder / "authority.pem")):
        assert await can_list(broker, folder, trust)
    identity, _ = await join(old_line.address, JoinToken.parse(old_line.token), "n4")
    assert is_issued_by(identity.certificate, read_chain((folder / "authority.pem").read_bytes())[0])


async def a_line_of_before_says_what_to_do(line: JoinLine) -> None:
    """Before anything of it was sent."""
    with pytest.raises(NotAuthenticatedError, match=r"rotated since.*new line with 'tiercel node token'") as refused:
        await join(line.address, JoinToken.parse(line.token), "n5")
    assert refused.value.field == "token"


async def test_nodes_stay_joined_while_another_authority_takes_the_place_of_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over a restart of the broker in the middle; one node is away during all of it."""
    state = tmp_path / "b"
    ports = {"broker_port": 0, "nodes_port": 0}
    async with running_broker(state, listen=WIDE, **ports) as broker:
        address = broker.addresses["nodes_tls"]
        ports = {name: int(broker.addresses[key].rpartition(":")[2]) for name, key in PORTS.items()}
        agent = JoinedAgent("n2", tmp_path / "n2", lambda: address, await joined(broker, state, "n2"))
        away = await joined(broker, state, "n3")
        old = Trust(pin=broker.addresses["pin"])
        old_file = tmp_path / "old.pem"
        old_file.write_bytes((state / "authority.pem").read_bytes())
        async with operator_of(broker, state) as operator:
            old_line, late_line = [await create_join_token(operator, "", 60.0) for _ in range(2)]
        async with agent.running():
            await until(lambda: agent.welcomes == 1)
            begun = await rotated(broker, state)
            assert begun.earlier_pin == old.pin != begun.pin == broker.addresses["pin"]
            # The node renews within seconds, dials again by itself, and is known to have done so.
            await until(lambda: agent.welcomes == 2)
            trusted = read_chain(agent.file.with_name("authority.pem").read_bytes())
            assert {pin_of(each) for each in trusted} == {begun.pin, old.pin}
            await until(lambda: agent.answered > 2)
            await until_waiting_for(broker, state, ("n3",))
            await is_not_to_be_ended_yet(broker, state)
            await both_authorities_are_good(broker, state, begun, old_file, old_line)
            # The one that is away comes back in the middle, as does the broker.
            late = ScriptedAgent("", "n3", open_channel=lambda where: open_as(where, away))
            async with late.connected(address):
                assert late.ending is None
        async with agent.running():
            await until(lambda: agent.welcomes == 3)
    async with running_broker(state, listen=WIDE, **ports) as broker, agent.running():
        assert await state_at(broker, state) == AuthorityState(
            begun.pin, old.pin, begun.begun_at, begun.ends_at, ("n3",)
        )
        await until(lambda: agent.welcomes == 4)
        async with operator_of(broker, state) as operator:
            assert await finish_rotation(operator, force=True) == AuthorityState(begun.pin)
        # The node asks for what leads to the new one alone.
        await until(lambda: len(read_chain(agent.identity.chain)) == 2)
        await until(lambda: agent.welcomes == 5)
        assert [pin_of(each) for each in read_chain(agent.file.with_name("authority.pem").read_bytes())] == [begun.pin]
        sleeper = JoinedAgent("n3", tmp_path / "n3", lambda: address, away)
        async with sleeper.running():
            await until(lambda: "join again with a new line of 'tiercel node token'" in caplog.text)
        assert sleeper.welcomes == 0
        for trust in (old, Trust(authority=old_file)):
            with pytest.raises(TiercelError):
                await can_list(broker, state, trust)
        assert await can_list(broker, state, Trust(pin=begun.pin))
        await a_line_of_before_says_what_to_do(late_line)
        # Who slept through it joins again, by the name that it had, with a new line.
        again = await joined(broker, state, "n3")
        woken = ScriptedAgent("", "n3", open_channel=lambda where: open_as(where, again))
        async with woken.connected(address):
            assert woken.ending is None


PORTS = {
    "broker_port": "broker",
    "nodes_port": "nodes",
    "listen_port": "broker_tls",
    "listen_nodes_port": "nodes_tls",
}


@contextlib.asynccontextmanager
async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[tuple[Membership, Rotation, Audit]]:
    """What a broker that was started on the folder knows."""
    async with Store(sqlite_url(folder / "broker.sqlite")) as store:
        kept = KeptAuthority.open(folder, datetime.fromtimestamp(clock.now(), UTC))
        membership = Membership(MemberStore(store), kept, clock)
        await membership.start()
        audit = Audit(AuditStore(store), clock)
        await audit.start()
        yield membership, Rotation(kept, membership, clock), audit


async def let_in(membership: Membership, node: str) -> bytes:
    token, _ = await membership.make_token()
    return (await membership.join(token.id, token.secret, node, make_request(make_key()))).chain


async def turned(membership: Membership, chain: bytes) -> bytes:
    """A node renews, and is here with what it got."""
    fresh = await membership.renew(read_chain(chain)[0], make_request(make_key()))
    here = asyncio.ensure_future(membership.until_refused(read_chain(fresh)[0]))
    await until(lambda: not membership.behind())
    here.cancel()
    return fresh


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("step", ["begin", "finish"])
async def test_a_broker_that_dies_within_a_step_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, writes: int
) -> None:
    """It gets to write so many files of the step, and the disk takes no more."""
    clock, done = ManualClock(START), 0

    def dying(path: Path, content: bytes) -> None:
        nonlocal done
        done += 1
        if done > writes:
            raise OSError("no more")
        write_private(path, content)

    async with opened(tmp_path, clock) as (membership, rotation, _):
        chain = await let_in(membership, "n1")
        first = rotation.state().pin
        if step == "finish":
            await rotation.begin()
            chain = await turned(membership, chain)
        before = rotation.state()
        with monkeypatch.context() as patch:
            patch.setattr("tiercel.broker.trust.kept_authority.write_private", dying)
            with pytest.raises(CannotWriteError, match="make room"):
                await (rotation.begin() if step == "begin" else rotation.finish(force=True))
        assert rotation.state() == before  # a broker that lives on is where it was
    async with opened(tmp_path, clock) as (membership, rotation, _):
        assert rotation.state() == before
        assert membership.node_of(read_chain(chain)[0]) == "n1"
        if step == "begin":
            await rotation.begin()
            chain = await turned(membership, chain)
        await rotation.finish(force=True)
        assert membership.node_of(read_chain(chain)[0]) == "n1"
        assert rotation.state().pin != first
    async with opened(tmp_path, clock) as (membership, rotation, _):
        assert not rotation.state().earlier_pin
        assert membership.node_of(read_chain(chain)[0]) == "n1"


async def test_of_two_rotations_at_once_one_begins(tmp_path: Path) -> None:
    async with opened(tmp_path, ManualClock(START)) as (_, rotation, _):
        first = rotation.state().pin
        ends = await asyncio.gather(*(rotation.begin() for _ in range(5)), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["AuthorityState", *["ConflictError"] * 4]
        assert rotation.state().earlier_pin == first
        ends = await asyncio.gather(*(rotation.finish(force=True) for _ in range(3)), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["AuthorityState", *["NotFoundError"] * 2]


async def test_a_node_that_was_away_for_two_rotations_joins_again_and_nobody_waits_for_it_for_ever(
    tmp_path: Path,
) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as (membership, rotation, _):
        here, away = await let_in(membership, "n1"), await let_in(membership, "n2")
        for _ in range(2):
            await rotation.begin()
            fresh = await membership.renew(read_chain(here)[0], make_request(make_key()))
            assert rotation.state().waiting  # it was not here with it yet
            seen = asyncio.ensure_future(membership.until_refused(read_chain(fresh)[0]))
            await until(lambda: "n1" not in rotation.state().waiting)
            seen.cancel()
            with pytest.raises(NotAuthenticatedError):  # what it had before counts no more
                membership.node_of(read_chain(here)[0])
            here = fresh
            await rotation.finish(force=True)
            with pytest.raises(NotAuthenticatedError, match="join again"):
                membership.node_of(read_chain(away)[0])
        assert membership.node_of(read_chain(here)[0]) == "n1"
        assert not membership.is_member("n2")
        again = await let_in(membership, "n2")
        assert membership.node_of(read_chain(again)[0]) == "n2"


async def test_a_node_that_was_away_while_a_rotation_began_comes_back_without_a_hand(tmp_path: Path) -> None:
    """So it is waited for with the second step, and only then is not."""
    state = tmp_path / "b"
    async with running_broker(state, listen=WIDE) as broker:
        agent = JoinedAgent(
            "n2", tmp_path / "n2", lambda: broker.addresses["nodes_tls"], await joined(broker, state, "n2")
        )
        begun = await rotated(broker, state)
        assert begun.waiting == ("n2",)
        async with agent.running():
            await until_waiting_for(broker, state, ())
            await until(lambda: agent.welcomes == 2)  # with what it had, and with what it got
        assert pin_of(read_chain(agent.identity.chain)[-1]) == begun.pin


async def test_what_a_line_of_before_tells_to_whoever_has_the_earlier_key_lets_nobody_in(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as (membership, rotation, _):
        before, _ = await membership.make_token()
        used, _ = await membership.make_token()
        await rotation.begin()
        between, _ = await membership.make_token()
        await membership.join(used.id, used.secret, "n1", make_request(make_key()))  # still good: both are believed
        await rotation.finish(force=True)
    async with opened(tmp_path, clock) as (membership, _, _):
        with pytest.raises(NotAuthenticatedError, match="before the broker's authority was rotated; get a new line"):
            await membership.join(before.id, before.secret, "n2", make_request(make_key()))
        await membership.join(between.id, between.secret, "n2", make_request(make_key()))


async def test_the_second_step_comes_by_itself_when_nobody_is_cut_off_by_it_and_is_written_down(
    tmp_path: Path,
) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as (membership, rotation, audit), asyncio.TaskGroup() as group:
        tasks = [group.create_task(finish_in_time(rotation, audit, clock)), group.create_task(audit.run())]
        chain = await let_in(membership, "n1")
        await rotation.begin()
        clock.advance(KEPT_SECONDS + 61)
        await asyncio.sleep(0.05)
        assert rotation.state().waiting == ("n1",)  # a node that is away holds it up
        chain = await turned(membership, chain)
        clock.advance(61)
        await until(lambda: not rotation.state().earlier_pin)
        await audit.flush()
        _, pages = await audit.rows(0.0)
        rows = [row async for page in pages for row in page]
        assert [(row.caller, row.method, row.object, row.outcome) for row in rows] == [
            ("broker", "AuthorityService.FinishRotation", rotation.state().pin, outcome)
            for outcome in ("begun", "done")
        ]
        assert membership.node_of(read_chain(chain)[0]) == "n1"
        for task in tasks:
            task.cancel()


async def test_an_operator_who_is_early_is_told_whom_that_cuts_off(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    async with opened(tmp_path, clock) as (membership, rotation, _):
        with pytest.raises(NotFoundError, match="no rotation"):
            await rotation.finish()
        chain = await let_in(membership, "n1")
        await rotation.begin()
        with pytest.raises(ConflictError, match="nodes n1"):
            await rotation.finish()
        await turned(membership, chain)
        with pytest.raises(ConflictError, match="good for a day"):
            await rotation.finish()
        clock.advance(TENANTS_SECONDS + 1)
        assert not (await rotation.finish()).earlier_pin
