"""What-ifs from a real broker, answered by its child process."""

from __future__ import annotations

import asyncio
import json
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
from tiercel.core.what_if import AddedNode, Changes


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
            assert seen.jobs[0].note.startswith("unknown")
            assert seen.draws > 0

            others = await bob.what_if(Changes())
            assert [(each.id, each.name, each.tiers) for each in others.jobs] == [("", "another tenant's", ())]
            assert others.snapshot == (await what_if(operator, Changes())).snapshot
            with pytest.raises(NotFoundError, match=job.id):
                await bob.what_if(Changes(cancel=(job.id,)))
            gone = await what_if(operator, Changes(remove_nodes=("n1",)))
            assert gone.difference == (f"{job.id} waits: it fits on no node",)

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
            assert (await alice.what_if(Changes())).jobs  # the next one is answered again

            arguments = [
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
