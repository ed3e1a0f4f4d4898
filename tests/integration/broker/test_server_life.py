"""A real broker over real gRPC: the whole life of a job, and what its tenant can follow of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from testing.brokers import Tenant, at_work, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.actors import mailbox
from tiercel.v1 import jobs_pb2, nodes_pb2


async def test_a_job_with_two_tiers_from_submission_to_the_end(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit()
        run = await agent.wait_run(f"{job.id}-1")
        assert run.wanted.spec.module == "package.train"
        assert 0 < run.wanted.share.cpu_weight <= 1
        assert run.wanted.share.reason
        agent.write(run.run_id, b"epoch 1\n")
        agent.report(run.run_id, 0.5, 0.85)
        await alice.wait(job.id, lambda job: job.tiers[0].state == jobs_pb2.TIER_STATE_DELIVERED)
        agent.report(run.run_id, 0.95)
        done = await alice.wait_finished(job.id)

        assert done.state == jobs_pb2.JOB_STATE_COMPLETED
        assert done.reason == "all 2 tiers delivered"
        assert [tier.version for tier in done.tiers] == [1, 2]
        for tier in done.tiers:
            assert 0 < tier.reached_seconds <= tier.delivered_seconds <= done.finished_seconds
        assert agent.delivered == [(f"{job.id}-tier-1", 1), (f"{job.id}-tier-2", 2)]
        assert (done.attempts, done.best_value, done.cpu_seconds) == (1, 0.95, 3.0)

        (endpoint,) = await alice.endpoints()
        assert (endpoint.name, endpoint.live_version, endpoint.serving_http) == ("digits", 2, "127.0.0.1:8080")
        assert [version.job_id for version in endpoint.versions] == [job.id, job.id]
        await agent.until(lambda: agent.wanted is not None and not agent.wanted.runs)
        (node,) = await alice.nodes()
        assert (node.id, node.state, node.jobs, node.memory_reserved_bytes) == (
            "n1",
            jobs_pb2.NODE_STATE_ONLINE,
            0,
            0,
        )


async def test_a_job_whose_script_crashed_is_retried_resumed_and_followed_to_its_real_end(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit(retries=1)
        for attempt in (1, 2):
            await agent.wait_run(f"{job.id}-{attempt}")
            agent.report(f"{job.id}-{attempt}", 0.5)
            agent.exit(f"{job.id}-{attempt}", 1)
        failed = await alice.wait_finished(job.id)
        assert (failed.state, failed.attempts, failed.retries) == (jobs_pb2.JOB_STATE_FAILED, 2, 1)
        resumed = await alice.resume(job.id, max_epochs=200)
        assert (resumed.id, resumed.state) == (job.id, jobs_pb2.JOB_STATE_PENDING)
        following = asyncio.ensure_future(_collect(alice, job.id))
        run = await agent.wait_run(f"{job.id}-3")
        assert run.wanted.spec.max_epochs == 200
        agent.report(f"{job.id}-3", 0.95)
        events = await asyncio.wait_for(following, 90)
        states = [event.state_changed.state for event in events if event.HasField("state_changed")]
        assert jobs_pb2.JOB_STATE_FAILED in states
        assert states[-1] == jobs_pb2.JOB_STATE_COMPLETED, "an end that was not the last ends nothing"


async def test_events_can_be_followed_from_any_cursor_without_gaps(tmp_path: Path) -> None:
    async with (
        at_work(tmp_path) as (broker, agent, alice),
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        job = await alice.submit()
        noise = await bob.submit("bobs")
        following = asyncio.ensure_future(_collect(alice, job.id))
        await agent.wait_run(f"{job.id}-1")
        await agent.wait_run(f"{noise.id}-1")
        for step in range(20):
            agent.report(f"{noise.id}-1", 0.1)
            agent.report(f"{job.id}-1", 0.1 + 0.05 * step)
        # The stream ends by itself once the job has.
        events = await asyncio.wait_for(following, 90)
        assert events[-1].state_changed.state == jobs_pb2.JOB_STATE_COMPLETED
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))
        assert {event.job_id for event in events} == {job.id}
        assert {event.tenant for event in events} == {"alice"}
        for cut in (0, len(events) // 2, len(events) - 1):
            rest = [event async for event in alice.events(job.id, after=numbers[cut])]
            assert rest == events[cut + 1 :]
        assert await _collect(alice, job.id, after=2**63) == []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _collect(bob, job.id)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_all_events_of_a_tenant_and_of_nobody_else(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        await bob.submit("bobs")
        first = await alice.submit("a")
        events = alice.events()
        assert (await anext(events)).job_id == first.id
        second = await alice.submit("b")
        async with asyncio.timeout(90):
            while (event := await anext(events)).job_id != second.id:
                assert event.tenant == "alice"


async def test_output_can_be_followed_to_the_end_of_the_job(tmp_path: Path) -> None:
    async with (
        at_work(tmp_path) as (broker, agent, alice),
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        job = await alice.submit()
        assert await alice.output(job.id) == []
        run_id = f"{job.id}-1"
        await agent.wait_run(run_id)
        following = asyncio.ensure_future(alice.output(job.id, follow=True))
        agent.write(run_id, b"one\n")
        agent.write(run_id, b"two\n")
        agent.tell_raw(_log("../../evil", b"x"))
        agent.exit(run_id, 3)
        pieces = await asyncio.wait_for(following, 90)
        assert b"".join(data for _, data in pieces) == b"one\ntwo\n"
        assert await alice.output(job.id, offset=4) == [(4, b"two\n")]
        assert await alice.output(job.id, offset=2**64 - 1) == []
        done = await alice.get(job.id)
        assert (done.reason, done.log_tail) == ("the script exited with code 3", "one\ntwo\n")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bob.output(job.id)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_output_of_a_second_run_begins_anew(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit()
        await agent.wait_run(f"{job.id}-1")
        following = asyncio.ensure_future(alice.output(job.id, follow=True))
        agent.write(f"{job.id}-1", b"first run")
        agent.exit(f"{job.id}-1", None, lost=True)
        await agent.wait_run(f"{job.id}-2")
        agent.write(f"{job.id}-2", b"second")
        agent.exit(f"{job.id}-2", 0)
        pieces = await asyncio.wait_for(following, 90)
        assert (0, b"second") in pieces


async def test_a_model_that_cannot_be_delivered_fails_the_job_and_keeps_the_older_version(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit()
        run_id = f"{job.id}-1"
        await agent.wait_run(run_id)
        agent.report(run_id, 0.85)
        await alice.wait(job.id, lambda job: job.tiers[0].state == jobs_pb2.TIER_STATE_DELIVERED)
        agent.delivers = False
        agent.report(run_id, 0.95)
        await agent.until(lambda: agent.wanted is not None and len(agent.wanted.deliveries) == 1)
        agent.fail_delivery(f"{job.id}-tier-2", "the exported model answers differently")
        done = await alice.wait_finished(job.id)
        assert done.state == jobs_pb2.JOB_STATE_FAILED
        assert "could not be delivered: the exported model answers differently" in done.reason
        assert (await alice.endpoints())[0].live_version == 1


async def test_a_script_that_reports_without_end_slows_nobody_else_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More reports than fit into a mailbox: the stream waits, nothing is lost, and other calls are answered."""
    monkeypatch.setattr(mailbox, "ROOM_FOR_STREAMS", 100)
    async with at_work(tmp_path) as (_, agent, alice):
        job, other = await alice.submit("a"), await alice.submit("b")
        await agent.wait_run(f"{job.id}-1")
        await agent.wait_run(f"{other.id}-1")
        agent.report(f"{job.id}-1", *[0.1] * 200)
        agent.report(f"{other.id}-1", 0.95)
        assert (await alice.cancel(job.id)).state == jobs_pb2.JOB_STATE_STOPPING
        assert (await alice.wait_finished(job.id)).state == jobs_pb2.JOB_STATE_CANCELLED
        assert (await alice.wait_finished(other.id)).state == jobs_pb2.JOB_STATE_COMPLETED


async def test_cancelling_stops_the_run(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit()
        await agent.wait_run(f"{job.id}-1")
        assert (await alice.cancel(job.id)).state == jobs_pb2.JOB_STATE_STOPPING
        assert (await alice.wait_finished(job.id)).state == jobs_pb2.JOB_STATE_CANCELLED
        assert (await alice.cancel(job.id)).state == jobs_pb2.JOB_STATE_CANCELLED
        response = await alice.stub.ExplainJob(
            jobs_pb2.ExplainJobRequest(job_id=job.id), metadata=alice.metadata, timeout=20
        )
        assert [decision.trigger for decision in response.decisions] == ["arrival"]
        assert response.decisions[0].share.reason


async def _collect(tenant: Tenant, job_id: str, after: int = 0) -> list[jobs_pb2.JobEvent]:
    return [event async for event in tenant.events(job_id, after=after)]


def _log(run_id: str, data: bytes) -> nodes_pb2.ConnectRequest:
    return nodes_pb2.ConnectRequest(log=nodes_pb2.LogChunk(run_id=run_id, data=data))


async def test_an_endpoint_is_deleted_once_nothing_feeds_it_and_jobs_are_listed_in_pages(tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path))
    async with (
        running_broker(tmp_path) as broker,
        agent.connected(broker.nodes_address),
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        job = await alice.submit()
        with pytest.raises(grpc.aio.AioRpcError, match=f"is being fed by job {job.id}") as refused:
            await alice.delete_endpoint("digits")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await agent.wait_run(f"{job.id}-1")
        agent.report(f"{job.id}-1", 0.85, 0.95)
        agent.exit(f"{job.id}-1", 0)
        await alice.wait_finished(job.id)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await bob.delete_endpoint("digits")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        await alice.delete_endpoint("digits")
        assert await alice.endpoints() == []
        ids = [job.id, (await alice.submit("b")).id, (await alice.submit("c")).id]
        await bob.submit()  # the name is free for anybody
        request = jobs_pb2.ListJobsRequest(page_size=2)
        first = await alice.stub.ListJobs(request, metadata=alice.metadata, timeout=90)
        request.page_token = first.next_page_token
        second = await alice.stub.ListJobs(request, metadata=alice.metadata, timeout=90)
        assert [[job.id for job in page.jobs] for page in (first, second)] == [ids[:2], ids[2:]]
        assert second.next_page_token == ""
        request.page_token = "nobody gave this"
        with pytest.raises(grpc.aio.AioRpcError, match="page_token: is not one") as made_up:
            await alice.stub.ListJobs(request, metadata=alice.metadata, timeout=90)
        assert made_up.value.code() is grpc.StatusCode.INVALID_ARGUMENT
