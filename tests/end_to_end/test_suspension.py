"""A job that trains is made to wait, by its tenant or for another one: real broker, agent and training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.product_use import client_of, digits_job, running_product
from testing.two_nodes import JOB_SECONDS, TwoNodes
from testing.until import until
from tiercel import JobState, TierState
from tiercel.core.jobs import Resources
from tiercel.core.private_files import write_private
from tiercel.core.views import JobInfo

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

QUESTION = {"input": [[[0.0] * 8] * 8]}


async def wait_state(nodes: TwoNodes, job_id: str, state: JobState) -> None:
    await until(lambda: nodes.job(job_id).state is state, seconds=JOB_SECONDS)


async def test_a_suspended_job_frees_its_node_outlives_the_broker_and_goes_on_from_its_epoch(tmp_path: Path) -> None:
    nodes = TwoNodes(tmp_path, {"policy": "fair", "heartbeat_seconds": 0.5})
    await nodes.start_broker()
    try:
        await nodes.start_agent("n1")
        async with nodes.client() as alice:
            go = tmp_path / "go"  # until then its second tier is ahead
            arguments = ("--waits-for", str(go), "--epochs", "10000")
            handle = await alice.submit(digits_job(targets=(0.70, 0.93), arguments=arguments, max_epochs=10_000))
            await until(lambda: nodes.job(handle.id).tiers[0].state is TierState.DELIVERED, seconds=JOB_SECONDS)
            assert (await handle.suspend()).state in {JobState.STOPPING, JobState.RUNNING}
            await wait_state(nodes, handle.id, JobState.SUSPENDED)
            assert nodes.job(handle.id).reason == "suspended by its tenant: the broker holds its checkpoint"
            (node,) = await alice.list_nodes()
            assert (node.jobs, node.memory_reserved_bytes) == (0, 0)
            trained = nodes.job(handle.id).epoch
        await nodes.stop_broker()
        await nodes.start_broker()
        async with nodes.client() as alice:
            assert (await alice.get_job(handle.id)).state is JobState.SUSPENDED
            await until(lambda: bool(nodes._service.nodes()[0].serving_http), seconds=60.0)
            assert (await alice.infer("digits", QUESTION)).version == 1, "what is live goes on"
            assert nodes.job(handle.id).state is JobState.SUSPENDED, "nobody but its tenant lets it go on"
            go.touch()
            assert (await alice.job(handle.id).resume()).state is JobState.PENDING
            job = await alice.job(handle.id).wait(JOB_SECONDS)
        assert (job.state, job.attempts) == (JobState.COMPLETED, 2), job.reason
        went_on = [line for line in nodes.output(f"{handle.id}-2").splitlines() if line.startswith("going on after")]
        assert 1 <= int(went_on[0].split()[-1]) <= trained + 1
        assert nodes.carried() == []
    finally:
        await nodes.close()


async def test_a_job_of_a_higher_class_has_room_made_for_it_and_the_other_goes_on_by_itself(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    write_private(tmp_path / "broker" / "tenants.toml", b"[priority_classes.urgent]\nvalue = 100\n")
    nodes = TwoNodes(tmp_path, {"policy": "fair", "heartbeat_seconds": 0.5})
    await nodes.start_broker()
    try:
        await nodes.start_agent("n1")
        async with nodes.client() as alice:
            (node,) = await alice.list_nodes()
            large = Resources(cpu_cores=1.0, memory_bytes=int(0.6 * node.memory_bytes))
            go = tmp_path / "go"  # until then its second tier is ahead
            arguments = ("--waits-for", str(go), "--epochs", "10000")
            job = digits_job(targets=(0.70, 0.93), arguments=arguments, max_epochs=10_000, resources=large)
            low = (await alice.submit(job)).id
            await until(lambda: nodes.job(low).tiers[0].state is TierState.DELIVERED, seconds=JOB_SECONDS)
            urgent = digits_job("urgent", (0.70,), priority_class="urgent", resources=large)
            high = (await alice.submit(urgent)).id
            await until(lambda: nodes.job(low).is_stopping, seconds=JOB_SECONDS)
        await nodes.stop_broker()  # in the middle
        await nodes.start_broker()
        async with nodes.client() as alice:
            await until(lambda: nodes.job(high).run_active, seconds=JOB_SECONDS)
            waiting = nodes.job(low)
            assert (waiting.state, waiting.attempts) == (JobState.PENDING, 1)
            assert waiting.reason.startswith(f"suspended for job {high} of class urgent; ")
            assert (await alice.job(high).wait(JOB_SECONDS)).attempts == 1
            await until(lambda: nodes.job(low).state is JobState.RUNNING, seconds=JOB_SECONDS)
            go.touch()
            done = await alice.job(low).wait(JOB_SECONDS)
        assert (done.state, done.attempts) == (JobState.COMPLETED, 2), done.reason
        went_on = [line for line in nodes.output(f"{low}-2").splitlines() if line.startswith("going on after")]
        # The epoch in the middle of which it stopped was reported, and is done again.
        assert waiting.epoch - 1 <= int(went_on[0].split()[-1]) <= waiting.epoch + 1
        assert nodes.carried() == []
    finally:
        await nodes.close()


async def test_a_broker_that_is_killed_while_room_is_made_for_a_higher_class_loses_neither_job(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    write_private(tmp_path / "state" / "tenants.toml", b"[priority_classes.urgent]\nvalue = 100\n")
    go = tmp_path / "go"  # until then the second tier of the lower one is ahead

    async def wait_job(job_id: str, condition: Callable[[JobInfo], object]) -> JobInfo:
        async with asyncio.timeout(JOB_SECONDS), client_of(product) as alice:
            while not condition(job := await alice.get_job(job_id)):  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.02)
            return job

    async with running_product(tmp_path, environment={"TIERCEL_POLICY": "fair"}) as product:
        async with client_of(product) as alice:
            (node,) = await alice.list_nodes()
            large = Resources(cpu_cores=1.0, memory_bytes=int(0.6 * node.memory_bytes))
            arguments = ("--waits-for", str(go), "--epochs", "10000")
            spec = digits_job(targets=(0.70, 0.93), arguments=arguments, max_epochs=10_000, resources=large)
            low = (await alice.submit(spec)).id
            await wait_job(low, lambda job: job.tiers[0].state is TierState.DELIVERED)
            urgent = digits_job("urgent", (0.70,), priority_class="urgent", resources=large)
            high = (await alice.submit(urgent)).id
        await product.kill()  # whether it had decided by then or not
        await product.start()
        stopped = await wait_job(low, lambda job: job.state is not JobState.RUNNING or job.attempts > 1)
        await product.kill()  # while the lower one stops, or its checkpoint has just come
        await product.start()
        first = await wait_job(high, lambda job: job.state.is_final)
        assert (first.state, first.attempts) == (JobState.COMPLETED, 1), first.reason
        go.touch()
        done = await wait_job(low, lambda job: job.state.is_final)
        assert (done.state, done.attempts) == (JobState.COMPLETED, 2), done.reason
        async with client_of(product) as alice:
            output = b"".join([piece async for piece in alice.logs(low)]).decode()
        assert await product.stop() == 0
        assert product.left_over() == []
    went_on = [int(line.split()[-1]) for line in output.splitlines() if line.startswith("going on after")]
    assert went_on[-1] >= stopped.epoch - 1
