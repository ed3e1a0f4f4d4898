"""What-ifs at bad moments: while the broker begins, on a full disk, by many at once, of a job that is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

from testing.brokers import Tenant, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.small_disk import fill, small_disk
from tiercel.broker.client.client import Client
from tiercel.core.errors import OverloadedError
from tiercel.core.predictions import Prediction
from tiercel.core.what_if import Changes, WhatIf

CURVE = (0.5, 0.7, 0.85, 0.95)
SECONDS = 90.0


async def with_history(tenant: Tenant, agent: ScriptedAgent) -> str:
    """A job that runs, of whose program an earlier run is known."""
    first = await tenant.submit("first")
    run = await agent.wait_run(f"{first.id}-1")
    agent.report(run.run_id, *CURVE)
    agent.exit(run.run_id)
    await tenant.wait_finished(first.id)
    second = await tenant.submit("second")
    await agent.wait_run(f"{second.id}-1")
    return str(second.id)


async def answered(client: Client) -> WhatIf:
    """An answer, once nobody else is being answered."""
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(OverloadedError):
                return await client.what_if(Changes())
            await asyncio.sleep(0.05)


async def predictions(client: Client, job_id: str) -> tuple[Prediction, ...]:
    """What is recorded of a job, the oldest first."""
    return (await client.predictions(job_id)).predictions[::-1]


async def wait_tiers(client: Client, job_id: str, tiers: set[int]) -> None:
    """Wait until predictions of these tiers of a job are recorded, and of no other."""
    async with asyncio.timeout(SECONDS):
        while True:
            if {each.tier for each in await predictions(client, job_id)} == tiers:
                return
            await asyncio.sleep(0.1)


async def test_a_full_disk_and_a_broker_that_begins_leave_nobody_without_an_answer(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * 1024**2) as state_dir:
        agent, token = ScriptedAgent(node_token(state_dir), "n1"), tenant_token(state_dir)
        async with (
            running_broker(state_dir, policy="fair") as broker,
            tenant_of(broker.broker_address, token) as tenant,
            Client(broker.broker_address, token=token) as alice,
        ):
            assert (await answered(alice)).jobs == ()
            async with agent.connected(broker.nodes_address), agent.beating():
                job_id = await with_history(tenant, agent)
                filler = fill(state_dir)
                (told,) = (await answered(alice)).jobs
                assert (told.id, [tier.present is not None for tier in told.tiers]) == (job_id, [True, True])
                filler.unlink()
                await answered(alice)
                await wait_tiers(alice, job_id, {1, 2})
        async with (
            running_broker(state_dir, policy="fair") as broker,
            Client(broker.broker_address, token=token) as alice,
        ):
            # Its node is not back yet.
            (told,) = (await answered(alice)).jobs
            assert (told.id, told.present.node_id) == (job_id, "")
            assert {each.tier for each in await predictions(alice, job_id)} == {1, 2}


async def test_many_at_once_who_goes_away_and_a_job_that_is_cancelled_meanwhile(tmp_path: Path) -> None:
    agent, token = ScriptedAgent(node_token(tmp_path), "n1"), tenant_token(tmp_path)
    async with (
        running_broker(tmp_path, policy="fair") as broker,
        agent.connected(broker.nodes_address),
        agent.beating(),
        tenant_of(broker.broker_address, token) as tenant,
        Client(broker.broker_address, token=token) as alice,
        Client(broker.broker_address, token=tenant_token(tmp_path, "bob")) as bob,
    ):
        job_id = await with_history(tenant, agent)
        await asyncio.gather(*(answered(each) for each in (alice, bob, alice, bob)))
        found = await predictions(alice, job_id)
        assert {each.tier for each in found} == {1, 2}
        for tier in (1, 2):
            of_tier = [each for each in found if each.tier == tier]
            for before, after in itertools.pairwise(of_tier):
                apart = (after.made_at - before.made_at).total_seconds()
                assert apart >= before.told.seconds / 2, "a further one only as half of the time is over"

        gone = asyncio.create_task(alice.what_if(Changes()))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        asked = asyncio.create_task(answered(alice))
        await asyncio.sleep(0)
        await tenant.cancel(job_id)
        assert {each.id for each in (await asked).jobs} <= {job_id}
        await wait_tiers(alice, job_id, set())  # withdrawn
        assert (await answered(alice)).jobs == ()
