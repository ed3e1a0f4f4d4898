"""Where versions come from, asked of a real broker after a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel import Client, NotFoundError
from tiercel.broker.cli import app


async def trained(folder: Path, token: str) -> str:
    """The id of a job that reached two tiers, after three reports."""
    agent = ScriptedAgent(node_token(folder), environment="ab" * 12)
    async with (
        running_broker(folder) as broker,
        tenant_of(broker.broker_address, token) as alice,
        agent.connected(broker.nodes_address),
    ):
        job = await alice.submit(arguments=("--lr", "0.1"), labels={"sweep": "7"})
        await agent.wait_run(f"{job.id}-1")
        agent.report(f"{job.id}-1", 0.5, 0.85, 0.95)
        await alice.wait_finished(job.id)
    return job.id


async def test_versions_say_where_they_come_from_to_their_tenant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tenant_token(tmp_path)
    job_id = await trained(tmp_path, token)
    monkeypatch.setenv("TIERCEL_TOKEN", token)
    async with running_broker(tmp_path) as broker, Client(broker.broker_address, token=token) as client:
        second, first = await client.models.list("digits")
        assert [(each.version, each.tier, each.live, each.target) for each in (first, second)] == [
            (1, 1, False, 0.8),
            (2, 2, True, 0.9),
        ]
        card = await client.models.show("digits")
        assert card.version == second
        whole = card.lineage
        assert (whole.job_id, whole.run_id, whole.arguments) == (job_id, f"{job_id}-1", ("--lr", "0.1"))
        assert (whole.labels, whole.value) == ({"sweep": "7"}, second.value)
        assert [point.value for point in whole.curve] == [0.5, 0.85, 0.95]
        assert whole.metrics["accuracy"] == 0.95
        assert whole.environment == "ab" * 12
        differ = {each.what for each in await client.models.compare(("digits", 1), ("digits", None))}
        assert {"tier", "value", "live", "metrics.accuracy"} <= differ
        assert not differ & {"job_id", "arguments"}
        with pytest.raises(NotFoundError, match=r"no version 7; there is 1, 2"):
            await client.models.show("digits", 7)
        async with Client(client.address, token=tenant_token(tmp_path, "bob")) as bob:
            with pytest.raises(NotFoundError):
                await bob.models.show("digits")

        async def tiercel(*arguments: str) -> Result:
            command = ["models", *arguments, "--broker", client.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        assert "stays whatever is delivered" in (await tiercel("pin", "digits")).stdout
        assert json.loads((await tiercel("show", "digits", "--json")).stdout)["version"]["pinned"]
        assert "is what answers" in (await tiercel("remove", "digits", "2")).stderr
        assert "digits:1 go" in (await tiercel("remove", "digits", "1")).stdout
        assert "keeps no files of version 1; it keeps 2" in (await tiercel("remove", "digits", "1")).stderr
        assert json.loads((await tiercel("keep", "digits", "7", "--json")).stdout) == {"endpoint": "digits", "keep": 7}
        (known,) = await client.list_endpoints()
        assert (known.keep, [each.kept for each in known.versions]) == (7, [False, True])

        header, newest, _ = (await tiercel("ls", "digits")).stdout.splitlines()
        assert header.split()[:3] == ["MODEL", "STATE", "PROMISED"]
        assert newest.split()[:2] == ["digits:2", "pinned"]
        told = (await tiercel("show", "digits:2")).stdout
        assert f"run         {job_id}-1" in told
        assert "arguments   --lr 0.1" in told
        assert "curve       3 reports, 0.5 to 0.95" in told
        assert f"environment {'ab' * 12}" in told
        assert json.loads((await tiercel("show", "digits:2", "--json")).stdout)["lineage"]["run_id"] == f"{job_id}-1"
        assert len(json.loads((await tiercel("ls", "digits", "--json")).stdout)) == 2
        assert "no version; give a number such as digits:2" in (await tiercel("show", "digits:x")).stderr
