"""A job with a hard deadline is admitted where a real broker's what-if says that it is kept, and told so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.jobs import make_spec
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.cli.app import app
from tiercel.broker.client.client import Client
from tiercel.core.errors import DeadlineOutOfReachError
from tiercel.core.jobs import JobSpec
from tiercel.core.tiers import Tier
from tiercel.core.views import StateEvent

CURVE = (0.5, 0.7, 0.85, 0.95)


def hard(endpoint: str, seconds: float, module: str = "package.train") -> JobSpec:
    tiers = (Tier(0.8), Tier(0.9, deadline_seconds=seconds, hard=True))
    return make_spec(endpoint=endpoint, tiers=tiers, module=module)


async def test_a_promise_is_made_where_it_is_foretold_to_be_kept(tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path), "n1")
    async with (
        running_broker(tmp_path, policy="fifo") as broker,
        agent.connected(broker.nodes_address),
        agent.beating(),
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as alice,
    ):
        known = await tenant.submit("known")
        run = await agent.wait_run(f"{known.id}-1")
        agent.report(run.run_id, *CURVE)
        agent.exit(run.run_id)
        await tenant.wait_finished(known.id)

        with pytest.raises(DeadlineOutOfReachError, match="no earlier run of this program") as refused:
            await alice.submit(hard("strange", 1e6, module="package.other"))
        assert refused.value.field == "tiers[1].hard"
        with pytest.raises(DeadlineOutOfReachError, match=r"expected after .* and wanted after 1.1s at the latest"):
            await alice.submit(hard("soon", 1.1))
        assert {job.spec.endpoint for job in await alice.list_jobs()} == {"known"}, "what is refused is not there"

        handle = await alice.submit(hard("later", 1e6), idempotency_key="once")
        first = await anext(handle.events())
        assert isinstance(first, StateEvent)
        assert first.reason.startswith("tier 2 is expected after ")
        assert (await alice.get_job(handle.id)).spec.tiers[1].hard
        # It is the same job, whatever could be promised by now.
        assert (await alice.submit(hard("later", 1e6), idempotency_key="once")).id == handle.id

        arguments = ["submit", "--module", "package.train", "--endpoint", "by-line", "--metric", "accuracy"]
        tiers = '[{"target": 0.8}, {"target": 0.9, "deadline_seconds": 1000000, "hard": true}]'
        arguments += [
            "--set",
            f"tiers={tiers}",
            "--tenant",
            "alice",
            "--state-dir",
            str(tmp_path),
            "--broker",
            broker.broker_address,
        ]
        told = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert "It is admitted: tier 2 is expected after " in told.output
