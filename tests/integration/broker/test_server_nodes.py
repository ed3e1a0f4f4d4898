"""Who may speak for a node, what a node may say and fetch, and peers of another version: a real broker, real calls."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import grpc
import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent, ScriptedRun
from tiercel.core.jobs import Script
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.errors import TransferError
from tiercel.trainer_agent.runs.scripts import ScriptFetcher
from tiercel.v1 import PROTOCOL, PROTOCOL_KEY, jobs_pb2, nodes_pb2, nodes_pb2_grpc


async def test_a_second_agent_of_a_node_is_refused_while_the_first_is_heard_and_let_in_once_its_stream_broke(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = ScriptedAgent(node_token(tmp_path)), ScriptedAgent(node_token(tmp_path))
        async with first.connected(broker.nodes_address):
            await second.run(broker.nodes_address)
            assert second.ending is not None
            code, details, trailing = second.ending
            assert (code, trailing["tiercel-error-code"]) == (grpc.StatusCode.ALREADY_EXISTS, "node_taken")
            assert "another agent of this name is connected; give this one another --node-id" in details
            assert first.ending is None
            # A newer stream of the same agent takes the place of one that may be half open.
            again = ScriptedAgent(node_token(tmp_path))
            again.instance = first.instance
            async with again.connected(broker.nodes_address):
                await first.until(lambda: first.ending is not None)
                assert again.ending is None
        async with asyncio.timeout(90):  # as one that was killed and started again
            welcome = None
            while welcome is None:
                second = ScriptedAgent(node_token(tmp_path))
                async with second.connected(broker.nodes_address):
                    welcome = second.welcome


async def test_what_a_rogue_node_says_of_anothers_run_does_not_count_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker:
        owner, rogue = (ScriptedAgent(node_token(tmp_path), node_id, delivers=False) for node_id in ("n1", "n2"))
        async with (
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            owner.connected(broker.nodes_address),
        ):
            job = await alice.submit()
            run = await owner.wait_run(f"{job.id}-1")
            owner.report(run.run_id, 0.85)  # a tier, whose delivery is then asked for
            await owner.until(lambda: owner.wanted is not None and owner.wanted.deliveries)
            async with rogue.connected(broker.nodes_address):
                rogue.runs[run.run_id] = ScriptedRun(run.run_id, run.wanted, values=[0.0, 0.0])
                delivery_id = f"{job.id}-tier-1"
                delivered = nodes_pb2.DeliveryStatus(
                    delivery_id=delivery_id, stage=nodes_pb2.DELIVERY_STAGE_DELIVERED, value=0.99, sha256="cd" * 32
                )
                usage = nodes_pb2.RunUsage(run_id=run.run_id, cpu_seconds=1e6)
                for _ in range(3):
                    rogue.report(run.run_id, 0.99)
                    rogue.write(run.run_id, b"forged\n")
                    rogue.tell_raw(nodes_pb2.ConnectRequest(heartbeat=nodes_pb2.Heartbeat(runs=[usage])))
                    rogue.tell_raw(nodes_pb2.ConnectRequest(delivery=delivered))
                rogue.exit(run.run_id, 1)
                await rogue.until(lambda: rogue.taken.get(run.run_id) == 5)  # all of it was read
                after = await alice.get(job.id)
                assert (after.state, after.latest_value, after.cpu_seconds) == (jobs_pb2.JOB_STATE_RUNNING, 0.85, 1.0)
                assert await alice.output(job.id) == []
                assert after.tiers[0].state == jobs_pb2.TIER_STATE_REACHED
                assert [endpoint.live_version for endpoint in await alice.endpoints()] == [0]
                async with grpc.aio.insecure_channel(broker.nodes_address) as channel:
                    stub = nodes_pb2_grpc.NodesServiceStub(channel)
                    metadata = (("authorization", f"Bearer {node_token(tmp_path)}"),)
                    for instance, code in (
                        (rogue.instance, grpc.StatusCode.UNAUTHENTICATED),
                        (owner.instance, grpc.StatusCode.NOT_FOUND),  # it has no checkpoint to fetch, but may ask
                    ):
                        request = nodes_pb2.FetchCheckpointRequest(node_id="n1", run_id=run.run_id, instance=instance)
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await anext(aiter(stub.FetchCheckpoint(request, metadata=metadata, timeout=90)))
                        assert caught.value.code() is code
                    sending = stub.SendCheckpoint(metadata=metadata, timeout=90)
                    header = nodes_pb2.CheckpointHeader(node_id="n1", run_id=run.run_id, instance=rogue.instance)
                    await sending.write(nodes_pb2.SendCheckpointRequest(header=header))
                    assert await sending.code() is grpc.StatusCode.UNAUTHENTICATED
            owner.report(run.run_id, 0.95)
            assert (await alice.wait(job.id, lambda job: job.latest_value == 0.95)).attempts == 1
    assert caplog.text.count("node n2 speaks of run") == 1


@pytest.mark.parametrize(("protocol", "upgrade"), [(0, "the agent of node 'n1'"), (PROTOCOL + 1, "this broker")])
async def test_another_protocol_is_refused_with_the_side_to_upgrade(
    tmp_path: Path, protocol: int, upgrade: str
) -> None:
    async with running_broker(tmp_path) as broker:
        agent = ScriptedAgent(node_token(tmp_path))
        hello = nodes_pb2.NodeHello(node_id="n1", cpu_cores=1.0, memory_bytes=1, protocol=protocol)
        agent.first_message = nodes_pb2.ConnectRequest(hello=hello)
        await agent.run(broker.nodes_address)
        assert agent.ending is not None
        assert agent.ending[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert f": upgrade {upgrade}" in agent.ending[1]


async def test_a_tenant_may_say_its_protocol_and_another_one_is_refused(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
    ):
        request = jobs_pb2.ListJobsRequest()
        await alice.stub.ListJobs(request, metadata=alice.metadata, timeout=90)  # as standard tools call
        said = (*alice.metadata, (PROTOCOL_KEY, str(PROTOCOL)))
        await alice.stub.ListJobs(request, metadata=said, timeout=90)
        for spoken, upgrade in ((PROTOCOL + 1, "this broker"), ("none", "the client")):
            metadata = (*alice.metadata, (PROTOCOL_KEY, str(spoken)))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await alice.stub.ListJobs(request, metadata=metadata, timeout=90)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert f": upgrade {upgrade}" in (caught.value.details() or "")


async def test_a_script_is_fetched_by_the_agent_of_its_node_and_by_nobody_else(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        agent = ScriptedAgent(node_token(tmp_path))
        async with (
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            agent.connected(broker.nodes_address),
        ):
            job = await alice.submit(module="", script=Script("train.py", b"#" * 2**20))
            run = await agent.wait_run(f"{job.id}-1")
            assert (run.wanted.spec.script.name, run.wanted.spec.script.content) == ("train.py", b"")
            address = broker.nodes_address
            own = BrokerCalls("n1", agent.instance, LocalDialler(lambda: address, lambda: node_token(tmp_path)))
            fetched = await ScriptFetcher(own).fetch(run.run_id, run.wanted.script_sha256)
            assert hashlib.sha256(fetched).hexdigest() == run.wanted.script_sha256
            assert len(fetched) == 2**20
            other = BrokerCalls("n1", "f" * 32, LocalDialler(lambda: address, lambda: node_token(tmp_path)))
            with pytest.raises(TransferError, match="another agent speaks for node n1"):
                await ScriptFetcher(other).fetch(run.run_id, run.wanted.script_sha256)
            with pytest.raises(TransferError, match="damaged"):
                await ScriptFetcher(own).fetch(run.run_id, "ab" * 32)


# --- Fences -----------------------------------------------------------------------------------------------------------


async def test_a_fence_is_told_once_another_node_could_take_the_jobs_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first, second = (ScriptedAgent(node_token(tmp_path), node_id) for node_id in ("n1", "n2"))
        async with first.connected(broker.nodes_address):
            await first.until(lambda: first.answered is not None)
            assert first.welcome is not None
            assert first.answered is not None
            assert not first.welcome.HasField("fence")
            assert not first.answered.HasField("fence")
            async with second.connected(broker.nodes_address):
                assert second.welcome is not None
                assert second.welcome.fence == nodes_pb2.Fence(stop_after_seconds=90, end_after_seconds=110)
                first.heartbeat()
                await first.until(lambda: first.answered is not None and first.answered.heartbeat == first.beats)
                assert first.answered.fence == second.welcome.fence


async def test_who_answers_is_told_at_first_and_then_only_when_that_is_something_else(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        agent, other = (ScriptedAgent(node_token(tmp_path), node_id) for node_id in ("n1", "n2"))
        async with (
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            agent.connected(broker.nodes_address),
        ):
            await agent.until(lambda: agent.routes == [["n1"]])
            job = await alice.submit()
            await agent.wait_run(f"{job.id}-1")
            assert agent.routes == [["n1"]]
            async with other.connected(broker.nodes_address):
                await agent.until(lambda: agent.routes[-1] == ["n1", "n2"])
