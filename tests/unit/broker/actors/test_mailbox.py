"""Mailboxes: bounded, in order, and never at the mercy of one message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from testing.until import until
from tiercel.broker.actors import mailbox
from tiercel.broker.actors.mailbox import Actor, ActorFailedError
from tiercel.core.errors import NotFoundError, OverloadedError, UnavailableError


class Recorder(Actor[str]):
    """Writes down what it hears; fails on what begins with "bad", and waits for the gate on "wait"."""

    def __init__(self) -> None:
        super().__init__("recorder")
        self.heard: list[str] = []
        self.at_once: list[int] = []
        self.gate = asyncio.Event()

    async def receive(self, message: str) -> None:
        if message == "wait":
            await self.gate.wait()
        if message == "fatal":
            raise ActorFailedError("cannot go on")
        if message.startswith("bad"):
            raise ValueError(message)
        if message == "gone":
            raise NotFoundError("version: somebody else has just removed it")
        self.heard.append(message)

    def goes_with(self, message: str, following: str) -> bool:
        return message.startswith("report") and following.startswith("report")

    async def receive_all(self, messages: Sequence[str]) -> None:
        if len(messages) > 1 and "report nonsense" in messages:
            raise ValueError(messages)
        self.at_once.append(len(messages))
        await super().receive_all(messages)


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    actor = Recorder()
    async with asyncio.TaskGroup() as group:
        group.create_task(actor.run())
        yield actor
        actor.gate.set()
        actor.finish()


async def test_messages_are_handled_in_order(recorder: Recorder) -> None:
    for message in "abc":
        recorder.send_nowait(message)
    await recorder.send("d")
    await recorder.wait_idle()
    assert recorder.heard == ["a", "b", "c", "d"]
    assert recorder.statistics() == mailbox.ActorStatistics(waiting=0, handled=4, failed=0)


async def test_who_left_a_message_hears_when_it_was_handled_however_that_went(recorder: Recorder) -> None:
    handled: list[str] = []
    recorder.send_nowait("wait")
    for message in ("a", "bad"):
        await recorder.send(message, lambda message=message: handled.append(message))  # type: ignore[misc]
    await asyncio.sleep(0)
    assert handled == []
    recorder.gate.set()
    await recorder.wait_idle()
    assert handled == ["a", "bad"]
    recorder.finish()
    await recorder.wait_idle()
    await recorder.send("late", lambda: handled.append("late"))
    assert handled == ["a", "bad", "late"], "nobody would ever look"


async def test_a_message_that_fails_is_dropped_alone(recorder: Recorder) -> None:
    for message in ("a", "bad", "b"):
        recorder.send_nowait(message)
    await recorder.wait_idle()
    assert recorder.heard == ["a", "b"]
    assert recorder.statistics().failed == 1


async def test_what_is_refused_to_many_at_once_is_no_failure_of_the_actor(recorder: Recorder) -> None:
    """As to those who remove one version at the same time: one of them is first."""
    calls = [recorder.call("gone") for _ in range(mailbox.MAX_FAILURES_IN_A_ROW + 1)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in answers} == {NotFoundError}
    await recorder.call("a")
    assert recorder.statistics().failed == 0
    recorder.send_nowait("gone")  # nobody hears of it but the log
    await recorder.wait_idle()
    assert recorder.statistics().failed == 1


async def test_messages_that_wait_and_go_together_are_handled_at_once_in_their_order(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "TOGETHER", 3)
    handled: list[str] = []
    sent = ["wait", *(f"report {number}" for number in range(4)), "other", "report 4", "report 5"]
    for message in sent:
        await recorder.send(message, lambda message=message: handled.append(message))  # type: ignore[misc]
    call = asyncio.ensure_future(recorder.call("report 6"))
    await until(lambda: recorder.statistics().waiting == len(sent))
    recorder.gate.set()
    await call
    assert recorder.heard == [*sent, "report 6"]
    assert handled == sent
    assert recorder.at_once == [1, 3, 1, 1, 2, 1], "no more than three, and a call by itself"
    assert recorder.statistics() == mailbox.ActorStatistics(waiting=0, handled=len(sent) + 1, failed=0)


async def test_where_messages_that_go_together_fail_each_is_handled_alone(recorder: Recorder) -> None:
    recorder.send_nowait("wait")
    for message in ("report 1", "report nonsense", "report 2"):
        recorder.send_nowait(message)
    recorder.gate.set()
    await recorder.wait_idle()
    assert recorder.heard == ["wait", "report 1", "report nonsense", "report 2"]
    assert recorder.at_once == [1, 1, 1, 1]


async def test_only_the_latest_of_a_key_is_handled(recorder: Recorder) -> None:
    recorder.send_nowait("wait")
    for message in ("x1", "y1", "x2", "x3"):
        recorder.send_latest_nowait(message[0], message)
    recorder.gate.set()
    await recorder.wait_idle()
    assert recorder.heard == ["wait", "x3", "y1"]
    recorder.send_latest_nowait("x", "x4")
    await recorder.wait_idle()
    assert recorder.heard[-1] == "x4"


async def test_a_call_returns_once_the_message_was_handled(recorder: Recorder) -> None:
    await recorder.call("a")
    assert recorder.heard == ["a"]
    with pytest.raises(ValueError, match="bad news"):
        await recorder.call("bad news")


async def test_a_call_has_a_deadline(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "CALL_SECONDS", 0.01)
    recorder.send_nowait("wait")
    with pytest.raises(UnavailableError, match="recorder did not answer"):
        await recorder.call("a")
    with pytest.raises(UnavailableError, match="recorder is busy"):
        await recorder.wait_idle()


async def test_streams_wait_for_room_and_leave_some_for_actors(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.send_nowait("wait")
    await asyncio.sleep(0)
    for _ in range(mailbox.ROOM_FOR_STREAMS):
        await recorder.send("s")
    waiting = asyncio.ensure_future(recorder.send("last"))
    await asyncio.sleep(0)
    assert not waiting.done(), "the stream feels the pressure"
    recorder.send_nowait("actor")
    recorder.gate.set()
    await waiting
    await recorder.wait_idle()
    assert recorder.heard[-2:] == ["actor", "last"]


async def test_a_full_mailbox_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "CAPACITY", 2)
    actor = Recorder()
    actor.send_nowait("a")
    actor.send_nowait("b")
    with pytest.raises(OverloadedError, match="recorder has 2 messages waiting"):
        actor.send_nowait("c")
    with pytest.raises(OverloadedError):
        await actor.send("c")
    with pytest.raises(OverloadedError):
        actor.send_latest_nowait("c", "c")
    actor.finish()
    await actor.run()
    assert actor.heard == ["a", "b"], "what was refused has left nothing behind"


async def test_an_actor_that_always_fails_ends() -> None:
    actor = Recorder()
    for _ in range(mailbox.MAX_FAILURES_IN_A_ROW):
        actor.send_nowait("bad")
    with pytest.raises(ActorFailedError, match="20 messages in a row"):
        await actor.run()


async def test_what_cannot_be_undone_ends_the_actor_at_once() -> None:
    actor = Recorder()
    actor.send_nowait("fatal")
    actor.send_nowait("a")
    with pytest.raises(ActorFailedError, match="cannot go on"):
        await actor.run()
    assert actor.heard == []


async def test_finishing_handles_what_is_left_and_then_swallows() -> None:
    actor = Recorder()
    actor.send_nowait("a")
    actor.finish()
    actor.send_nowait("b")
    await actor.run()
    assert actor.heard == ["a", "b"]
    actor.send_nowait("c")
    actor.send_latest_nowait("d", "d")
    await actor.call("e")
    for _ in range(2 * mailbox.ROOM_FOR_STREAMS):
        await actor.send("f")
    assert actor.heard == ["a", "b"]
    assert actor.statistics().waiting == 0


async def test_finishing_wakes_an_actor_that_sleeps() -> None:
    actor = Recorder()
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        group.create_task(actor.run())
        await asyncio.sleep(0)
        actor.finish()
        actor.finish()
