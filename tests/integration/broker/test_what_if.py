"""What-ifs from a real broker, answered by its child process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.membership import operator_of
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.cli.app import app
from tiercel.broker.client.client import Client
from tiercel.broker.client.what_if import what_if
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.predictions import Prediction, PredictionState
from tiercel.core.what_if import AddedNode, Changes


async def recorded(
    client: Client, job_id: str, condition: Callable[[tuple[Prediction, ...]], bool]
) -> tuple[Prediction, ...]:
    """What is recorded of a job, once it is so."""
    async with asyncio.timeout(90):
        while True:
            found = (await client.predictions(job_id)).predictions
            if condition(found):
                return found
            await asyncio.sleep(0.1)


async def test_tenants_and_operators_are_told_what_is_theirs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        connected = agent.connected(broker.nodes_address)
        async with (
            connected,
            agent.beating(),
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as submitter,
            Client(broker.broker_address, token=tenant_token(tmp_path)) as alice,
            Client(broker.broker_address, token=tenant_token(tmp_path, "bob")) as bob,
        ):
            job = await submitter.submit("digits")
            await until(lambda: agent.runs)
            seen = await alice.what_if(Changes(policy="fifo", add_nodes=(AddedNode(cpu_cores=4.0),)))
            assert [each.id for each in seen.jobs] == [job.id]
            assert seen.jobs[0].present.node_id == "n1"
            assert seen.jobs[0].note.startswith("no earlier run")
            assert seen.draws > 0

            others = await bob.what_if(Changes())
            assert [(each.id, each.name, each.tiers) for each in others.jobs] == [("", "another tenant's", ())]
            with pytest.raises(NotFoundError, match=job.id):
                await bob.what_if(Changes(cancel=(job.id,)))
            gone = await what_if(operator, Changes(remove_nodes=("n1",)))
            assert gone.difference == (f"{job.id} waits: it fits on no node",)
            assert gone.snapshot == others.snapshot

            for changes, field in (
                (Changes(policy="no-such"), "policy"),
                (Changes(requests={"digits": -1.0}), "requests[digits]"),
                (Changes(remove_nodes=tuple(map(str, range(33)))), "remove_nodes"),
                (Changes(add_nodes=(AddedNode(cpu_cores=float("nan")),)), "add_nodes[0].cpu_cores"),
            ):
                with pytest.raises(InvalidSpecError) as caught:
                    await alice.what_if(changes)
                assert caught.value.field == field

            two = await asyncio.gather(alice.what_if(Changes()), alice.what_if(Changes()), return_exceptions=True)
            assert sorted(getattr(each, "code", "answered") for each in two) == ["answered", "overloaded"]

            arguments = [  # the next one is answered again
                "what-if",
                "--state-dir",
                str(tmp_path),
                "--broker",
                broker.broker_address,
                "--cancel",
                job.id,
                "--json",
            ]
            told = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert told.exit_code == 0, told.output
            assert json.loads(told.stdout)["difference"] == [f"{job.id} is cancelled"]
            told = await asyncio.to_thread(CliRunner().invoke, app, arguments[:5])
            header = next(line for line in told.output.splitlines() if line)
            assert header.split("  ")[-1].strip() == "AS THINGS ARE", "nothing was asked to be different"


async def test_what_was_predicted_is_recorded_by_itself_and_settled_though_the_broker_began_anew(
    tmp_path: Path,
) -> None:
    agent = ScriptedAgent(node_token(tmp_path), "n1")
    curve = (0.5, 0.7, 0.85, 0.95)
    async with (
        running_broker(tmp_path, policy="fair") as broker,
        agent.connected(broker.nodes_address),
        agent.beating(),
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as alice,
    ):
        for endpoint in ("first", "second"):
            job = await tenant.submit(endpoint)
            run = await agent.wait_run(f"{job.id}-1")
            if endpoint == "first":
                agent.report(run.run_id, *curve)
                agent.exit(run.run_id)
                await tenant.wait_finished(job.id)
        found = await recorded(alice, job.id, lambda each: len(each) == len(job.tiers))
    assert {each.tier for each in found} == {1, 2}
    assert all(each.state is PredictionState.OPEN and each.policy == "fair" for each in found)

    async with running_broker(tmp_path, policy="fair") as broker, agent.connected(broker.nodes_address):
        agent.report(run.run_id, *curve)
        async with (
            agent.beating(),
            Client(broker.broker_address, token=tenant_token(tmp_path)) as alice,
            Client(broker.broker_address, token=tenant_token(tmp_path, "bob")) as bob,
        ):
            found = await recorded(alice, job.id, lambda all_: all(p.state is not PredictionState.OPEN for p in all_))
            assert all(each.state is PredictionState.CAME and each.came_seconds for each in found)
            assert (await bob.predictions()).predictions == ()
            with pytest.raises(InvalidSpecError, match="limit"):
                await alice.predictions(limit=1001)
            arguments = ["what-if", "--errors", "--state-dir", str(tmp_path), "--broker", broker.broker_address]
            told = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--json"])
            assert json.loads(told.stdout)["accuracy"][0]["policy"] == "fair"
            shown = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert job.id in shown.stdout
