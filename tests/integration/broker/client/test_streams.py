"""Events and logs, over connections that break."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc
import pytest

from testing import jobs_service as wire
from testing.free_ports import free_port
from testing.jobs_service import QUICK, TOKEN, Refusal, Script, serving
from testing.until import until
from tiercel import Client, JobState, NotFoundError, TierMissedError, TierState, UnavailableError
from tiercel.broker.client import ProgressEvent, ShareEvent, StateEvent, TierEvent
from tiercel.v1 import jobs_pb2


def finished(script: Script) -> None:
    """A job of five events that has finished."""
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED, delivered=2, reason="Every tier is delivered.")
    script.events = [
        wire.state_changed(1, jobs_pb2.JOB_STATE_RUNNING),
        wire.share_changed(2, 0.5),
        wire.progress_made(4, 0.91),
        wire.tier_changed(6, wire.tier_status(1, 0.9, delivered=True)),
        wire.state_changed(7, jobs_pb2.JOB_STATE_COMPLETED, "Every tier is delivered."),
    ]


async def test_events_come_in_order_and_end_with_the_job(client: Client, script: Script) -> None:
    finished(script)

    events = [event async for event in client.job("j1").events()]

    assert [type(event) for event in events] == [StateEvent, ShareEvent, ProgressEvent, TierEvent, StateEvent]
    assert [event.sequence for event in events] == [1, 2, 4, 6, 7]
    assert events[2].to_json()["event"] == "progress"
    assert events[2].to_json()["metrics"] == {"accuracy": 0.91}


async def test_events_go_on_behind_the_last_one_after_a_break(client: Client, script: Script) -> None:
    finished(script)
    script.breaks = [2, 0, 1]

    sequences = [event.sequence async for event in client.job("j1").events()]

    assert sequences == [1, 2, 4, 6, 7]
    assert script.watched_after == [0, 2, 2, 4]


async def test_events_begin_behind_a_cursor(client: Client, script: Script) -> None:
    finished(script)

    assert [event.sequence async for event in client.job("j1").events(after=4)] == [6, 7]


async def test_a_job_is_waited_for_across_a_restart_of_the_broker() -> None:
    port = free_port()
    before, after = Script(), Script()
    finished(after)
    before.jobs["j1"], before.events = wire.job(), after.events[:2]
    async with Client(f"127.0.0.1:{port}", token=TOKEN, options=QUICK) as client:
        async with serving(before, port):
            waiting = asyncio.create_task(client.job("j1").wait(timeout=90))
            await until(lambda: before.watched_after)
        async with serving(after, port):
            job = await waiting

    assert job.state is JobState.COMPLETED
    assert after.watched_after in ([1], [2])  # the first broker may be gone before its second event was heard


async def test_a_broker_that_stays_away_is_given_up() -> None:
    script = Script()
    script.jobs["j1"] = wire.job()
    port = free_port()
    async with Client(f"127.0.0.1:{port}", token=TOKEN, options=QUICK) as client:
        async with serving(script, port):
            waiting = asyncio.create_task(client.job("j1").wait())
            await until(lambda: script.watched_after)
        with pytest.raises(UnavailableError, match="tiercel up"):
            await waiting


async def test_waiting_has_a_limit(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job()

    with pytest.raises(TimeoutError):
        await client.job("j1").wait(timeout=0.05)


async def test_a_tier_is_waited_for(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job()
    script.events = [wire.progress_made(1, 0.95), wire.tier_changed(2, wire.tier_status(1, 0.9, delivered=True))]

    tier = await client.job("j1").wait_for_tier(1, timeout=90)

    assert (tier.number, tier.state, tier.version) == (1, TierState.DELIVERED, 1)


async def test_a_tier_that_is_there_is_not_waited_for(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job(delivered=1)

    assert (await client.job("j1").wait_for_tier(1)).version == 1
    assert "WatchJobs" not in script.calls


async def test_a_tier_that_will_not_come_is_an_error_with_the_reason(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_FAILED, delivered=1, reason="The script crashed.")

    with pytest.raises(TierMissedError, match="The script crashed"):
        await client.job("j1").wait_for_tier(2)
    with pytest.raises(NotFoundError, match="has no tier 3"):
        await client.job("j1").wait_for_tier(3)


async def test_logs_go_on_at_the_byte_where_they_broke(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED)
    script.logs["j1"] = b"epoch 1\nepoch 2\nepoch 3\n"
    script.breaks = [3, 1]

    assert b"".join([chunk async for chunk in client.job("j1").logs(follow=True)]) == script.logs["j1"]


async def test_logs_say_how_much_is_left_out_between_their_beginning_and_their_end(
    client: Client, script: Script
) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED)
    script.logs["j1"] = b"headhead" + b"x" * 400 + b"tailtail"
    script.log_gap = range(8, 408)
    script.breaks = [3]

    output = b"".join([chunk async for chunk in client.job("j1").logs(follow=True)])
    assert output == b"headhead\n[tiercel: 400 bytes of output are not kept]\ntailtail"


async def test_a_refusal_is_not_taken_for_a_break(client: Client, script: Script) -> None:
    with pytest.raises(NotFoundError):
        await anext(client.job("nobody").events())
    script.jobs["j1"] = wire.job()
    script.refusals["StreamLogs"] = [Refusal(grpc.StatusCode.NOT_FOUND, "not_found", "It has no output yet.")]
    with pytest.raises(NotFoundError, match="no output yet"):
        await anext(client.job("j1").logs())


async def test_a_stream_that_is_left_early_is_ended(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job()
    script.events = [wire.state_changed(1, jobs_pb2.JOB_STATE_RUNNING)]

    async with aclosing(client.job("j1").events()) as events:
        assert (await anext(events)).sequence == 1
        await until(lambda: script.open_watches == 1)

    await until(lambda: script.open_watches == 0)
