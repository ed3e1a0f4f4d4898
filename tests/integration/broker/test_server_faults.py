"""A real broker that is killed or stands still, and nodes that vanish."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest

from testing.brokers import at_work, broker_process, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.warm_python import WarmProcess
from tiercel.v1 import jobs_pb2, nodes_pb2


def killed(process: WarmProcess) -> None:
    process.kill()
    process.wait(60)


# --- kill -9 ----------------------------------------------------------------------------------------------------------


async def test_a_broker_killed_in_mid_run_finishes_the_job_and_delivers_once(tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path))
    token = tenant_token(tmp_path)
    async with broker_process(tmp_path) as (process, address, nodes, _), tenant_of(address, token) as alice:
        job = await alice.submit(key="mine")
        run_id = f"{job.id}-1"
        async with agent.connected(nodes):
            await agent.wait_run(run_id)
            agent.report(run_id, 0.5, 0.85)
            await alice.wait(job.id, lambda job: job.tiers[0].state == jobs_pb2.TIER_STATE_DELIVERED)
            killed(process)
            # Training goes on while the broker is away: the last tier is reached and the script ends.
            agent.delivers = False
            agent.report(run_id, 0.95)
            agent.exit(run_id, 0)
    async with broker_process(tmp_path) as (process, address, nodes, _), tenant_of(address, token) as alice:
        assert (await alice.submit(key="mine")).id == job.id
        async with agent.connected(nodes):
            reached = await alice.wait(job.id, lambda job: job.tiers[1].state == jobs_pb2.TIER_STATE_REACHED)
            assert reached.state in {jobs_pb2.JOB_STATE_STOPPING, jobs_pb2.JOB_STATE_RUNNING}
            await agent.until(lambda: agent.wanted is not None and agent.wanted.deliveries)
            killed(process)
    agent.delivers = True
    async with broker_process(tmp_path) as (process, address, nodes, _), tenant_of(address, token) as alice:
        async with agent.connected(nodes):
            done = await alice.wait_finished(job.id)
        assert done.state == jobs_pb2.JOB_STATE_COMPLETED
        assert [tier.version for tier in done.tiers] == [1, 2]
        assert agent.delivered == [(f"{job.id}-tier-1", 1), (f"{job.id}-tier-2", 2)]
        assert done.attempts == 1
        (endpoint,) = await alice.endpoints()
        assert [version.version for version in endpoint.versions] == [1, 2]
        events = [event async for event in alice.events(job.id)]
        delivered = [e for e in events if e.tier_changed.tier.state == jobs_pb2.TIER_STATE_DELIVERED]
        assert [event.tier_changed.tier.number for event in delivered] == [1, 2]
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("reports", [0, 10])
async def test_a_broker_killed_at_any_moment_loses_no_tier(tmp_path: Path, reports: int) -> None:
    """Killed in the middle of a stream of reports, without waiting for anything to settle."""
    agent = ScriptedAgent(node_token(tmp_path))
    token = tenant_token(tmp_path)
    values = [0.75 + 0.01 * step for step in range(20)]
    async with broker_process(tmp_path) as (process, address, nodes, _), tenant_of(address, token) as alice:
        job = await alice.submit()
        run_id = f"{job.id}-1"
        async with agent.connected(nodes):
            await agent.wait_run(run_id)
            agent.report(run_id, *values[:reports])
            await asyncio.sleep(0)
            killed(process)
            agent.report(run_id, *values[reports:])
    async with broker_process(tmp_path) as (_, address, nodes, _), tenant_of(address, token) as alice:
        async with agent.connected(nodes):
            done = await alice.wait_finished(job.id)
        assert (done.state, done.attempts) == (jobs_pb2.JOB_STATE_COMPLETED, 1)
        assert [tier.version for tier in done.tiers] == [1, 2]
        assert len(set(agent.delivered)) == 2


# --- SIGSTOP ----------------------------------------------------------------------------------------------------------


async def test_a_broker_that_was_stopped_for_a_while_holds_nobody_for_silent(tmp_path: Path) -> None:
    """As when the machine's memory is swapped out or somebody pressed Ctrl-Z; what hangs afterwards is found out."""
    agent = ScriptedAgent(node_token(tmp_path))
    patience = {"heartbeat_seconds": 1.0, "lease_seconds": 5.0, "gone_after_seconds": 5.0}
    async with (
        broker_process(tmp_path, **patience) as (process, address, nodes, _),
        tenant_of(address, tenant_token(tmp_path)) as alice,
    ):
        job = await alice.submit(report_timeout_seconds=5.0)
        run_id = f"{job.id}-1"
        async with agent.connected(nodes):
            await agent.wait_run(run_id)
            agent.report(run_id, 0.5)
            before = await alice.wait(job.id, lambda job: job.best_value == 0.5)
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(6.5)  # longer than the lease, and than the script may be silent
            os.kill(process.pid, signal.SIGCONT)
            agent.heartbeat()
            agent.report(run_id, 0.6)
            again = await alice.wait(job.id, lambda job: job.best_value == 0.6 or job.state != before.state)
            assert (again.state, again.attempts) == (jobs_pb2.JOB_STATE_RUNNING, 1), again.reason
            (node,) = await alice.nodes()
            assert (node.state, node.lease_epoch) == (jobs_pb2.NODE_STATE_ONLINE, 1)


# --- Nodes that come and go -------------------------------------------------------------------------------------------


async def test_a_newer_stream_of_a_node_ends_the_older_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = ScriptedAgent(node_token(tmp_path)), ScriptedAgent(node_token(tmp_path))
        second.instance = first.instance
        async with first.connected(broker.nodes_address):
            assert first.welcome is not None
            async with second.connected(broker.nodes_address):
                await first.until(lambda: first.ending is not None)
                assert first.ending is not None
                code, details, trailing = first.ending
                assert code is grpc.StatusCode.ABORTED
                assert details == "a newer stream of node n1 took over"
                assert trailing["tiercel-error-code"] == "lease_lost"
                assert second.welcome is not None
                assert second.welcome.lease_epoch == first.welcome.lease_epoch + 1


async def test_a_node_whose_lease_runs_out_is_told_and_comes_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path, lease_seconds=0.5, heartbeat_seconds=0.1) as broker:
        agent = ScriptedAgent(node_token(tmp_path))
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            job = await alice.submit()
            async with agent.connected(broker.nodes_address):
                await agent.wait_run(f"{job.id}-1")
                await alice.wait(job.id, lambda job: job.state == jobs_pb2.JOB_STATE_DISCONNECTED)
                assert [node.state for node in await alice.nodes()] == [jobs_pb2.NODE_STATE_OFFLINE]
                await agent.until(lambda: agent.ending is not None)
                assert agent.ending is not None
                assert agent.ending[0] is grpc.StatusCode.ABORTED
                assert "the lease of node n1 ran out; connect again" in agent.ending[1]
            async with agent.connected(broker.nodes_address):
                agent.report(f"{job.id}-1", 0.5)
                back = await alice.wait(job.id, lambda job: job.latest_value == 0.5)
                assert back.attempts == 1


async def test_a_node_that_stays_away_loses_its_jobs_to_another(tmp_path: Path) -> None:
    settings = {"lease_seconds": 4.0, "gone_after_seconds": 4.0, "heartbeat_seconds": 1.0}
    async with running_broker(tmp_path, **settings) as broker:
        lost, other = (ScriptedAgent(node_token(tmp_path), node_id) for node_id in ("n1", "n2"))
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            async with lost.connected(broker.nodes_address):
                job = await alice.submit()
                await lost.wait_run(f"{job.id}-1")
            await alice.wait(job.id, lambda job: job.state == jobs_pb2.JOB_STATE_PENDING)
            async with other.connected(broker.nodes_address), other.beating():
                await other.wait_run(f"{job.id}-2")
                other.report(f"{job.id}-2", 0.95)
                done = await alice.wait_finished(job.id)
                assert (done.node_id, done.attempts) == ("n2", 2)
                assert done.state == jobs_pb2.JOB_STATE_COMPLETED
            async with lost.connected(broker.nodes_address):
                await lost.until(lambda: lost.wanted is not None and not lost.runs)


async def test_an_agent_that_lost_its_state_starts_the_job_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        agent, fresh = ScriptedAgent(node_token(tmp_path)), ScriptedAgent(node_token(tmp_path))
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            job = await alice.submit()
            async with agent.connected(broker.nodes_address):
                await agent.wait_run(f"{job.id}-1")
                agent.report(f"{job.id}-1", 0.1, 0.2)
                await alice.wait(job.id, lambda job: job.latest_value == 0.2)
            done = None
            while done is None:
                fresh.ending = None
                async with fresh.connected(broker.nodes_address):
                    if fresh.welcome is None:  # refused until the broker has heard that the other stream broke
                        continue
                    await fresh.wait_run(f"{job.id}-2")
                    fresh.report(f"{job.id}-2", 0.95)
                    done = await alice.wait_finished(job.id)
            assert (done.state, done.attempts) == (jobs_pb2.JOB_STATE_COMPLETED, 2)


async def test_what_is_said_under_another_epoch_does_not_count(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (_, agent, alice):
        job = await alice.submit()
        run_id = f"{job.id}-1"
        await agent.wait_run(run_id)
        old = nodes_pb2.Progress(run_id=run_id, sequence=99, epoch=99, metrics={"accuracy": 0.99})
        agent.tell_raw(nodes_pb2.ConnectRequest(lease_epoch=77, progress=old))
        agent.report(run_id, 0.5)
        known = await alice.wait(job.id, lambda job: job.HasField("latest_value"))
        assert known.latest_value == 0.5


async def test_agents_that_vanish_leave_a_broker_that_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        for _ in range(10):
            agent = ScriptedAgent(node_token(tmp_path))
            async with agent.connected(broker.nodes_address):
                pass
        async with (
            agent.connected(broker.nodes_address),
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        ):
            job = await alice.submit()
            watching = asyncio.ensure_future(anext(alice.events(job.id, after=10_000)))
            await asyncio.sleep(0.05)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await agent.wait_run(f"{job.id}-1")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


# --- The process ------------------------------------------------------------------------------------------------------


async def test_a_broker_that_is_stopped_properly_goes_on_where_it_was(tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path))
    async with (
        running_broker(tmp_path) as broker,
        agent.connected(broker.nodes_address),
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
    ):
        job = await alice.submit()
        await agent.wait_run(f"{job.id}-1")
    async with (
        running_broker(tmp_path) as broker,
        agent.connected(broker.nodes_address),
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
    ):
        assert (await alice.wait(job.id, lambda job: job.state == jobs_pb2.JOB_STATE_RUNNING)).attempts == 1
        found = await asyncio.wait_for(broker.wait_serving(lambda: agent.node_id), 90)
        assert found == {"serving_http": "127.0.0.1:8080", "serving_grpc": "127.0.0.1:8081"}
        agent.report(f"{job.id}-1", 0.95)
        assert (await alice.wait_finished(job.id)).state == jobs_pb2.JOB_STATE_COMPLETED


async def test_the_inference_server_of_a_second_node_is_not_taken_for_that_of_the_first(tmp_path: Path) -> None:
    """``addresses.json`` said where a server of a node that joined later answers."""
    first, second = (
        ScriptedAgent(node_token(tmp_path), node_id=name, serving=(f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"))
        for name, port in (("mine", 8080), ("another", 9090))
    )
    async with running_broker(tmp_path) as broker, second.connected(broker.nodes_address):
        found = await asyncio.wait_for(broker.wait_serving(lambda: "another"), 90)
        assert found == {"serving_http": "127.0.0.1:9090", "serving_grpc": "127.0.0.1:9091"}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.wait_serving(lambda: "mine"), 0.5)
        async with first.connected(broker.nodes_address):
            found = await asyncio.wait_for(broker.wait_serving(lambda: "mine"), 90)
    assert tuple(found.values()) == first.serving
