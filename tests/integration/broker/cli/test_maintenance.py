"""Commands for work on a machine, against a real broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from testing.brokers import FINAL, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.cli.app import app


async def test_a_drained_node_is_waited_for_until_its_job_has_ended(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))

        async def drain(*options: str) -> Result:
            command = ["node", "drain", "n1", *options, "--state-dir", str(tmp_path)]
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        agent = ScriptedAgent(node_token(tmp_path), "n1")
        connected = agent.connected(broker.nodes_address)
        async with connected, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            job = await alice.submit("digits")
            await until(lambda: agent.runs)
            full = await drain("--wait", "--timeout", "0.1s")
            assert full.exit_code == 5, full.output
            assert "after 0.1s, node n1 has 1 job left; it stays drained" in full.stderr
            told = await drain("--wait", "--timeout", "0", "--json")
            left = {"node": "n1", "jobs": 1, "endpoints": [], "empty": False}
            assert (told.exit_code, json.loads(told.stdout)) == (5, left)

            stuck = await drain("--migrate", "--wait", "--timeout", "0")
            assert stuck.exit_code == 5, stuck.output
            assert "node n1 has 1 job left, and no other node takes anything: let another machine join" in stuck.stderr

            waiting = asyncio.create_task(drain("--wait", "--timeout", "60s"))
            agent.exit(next(iter(agent.runs)), 1)
            await alice.wait(job.id, lambda seen: seen.state in FINAL)
            empty = await waiting
            assert empty.exit_code == 0, empty.output
            assert empty.stdout.splitlines()[-1] == "Nothing is left on node n1."
            assert "left: nothing" in empty.stderr


def test_a_time_that_is_none_or_that_nobody_waits_for() -> None:
    def refused(*options: str) -> str:
        result = CliRunner().invoke(app, ["node", "drain", "n1", *options])
        assert result.exit_code == 2
        return result.stderr

    assert "--timeout: 'soon' is not a time" in refused("--wait", "--timeout", "soon")
    assert "--timeout says how long --wait waits" in refused("--timeout", "1m")


async def test_a_backup_that_cannot_be_written_says_why_in_a_sentence(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        file = tmp_path / "missing" / "keys.tar"
        command = ["backup", str(file), "--state-dir", str(tmp_path)]
        told = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert told.exit_code == 1
    why = "cannot be written (No such file or directory); name a file in a folder of yours that has room."
    assert told.stderr == f"Error: {file} {why}\n"
