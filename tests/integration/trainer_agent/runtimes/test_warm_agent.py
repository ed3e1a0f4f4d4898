"""An agent finds out by itself what a tenant's runs import, and starts the next ones warm."""

from __future__ import annotations

import asyncio
import itertools

from testing.nodes_broker import AgentProcess, ScriptedBroker, wanted_run
from testing.until import until

SHORT = ("--metric", "score", "--steps", "2", "--epochs", "3")


async def test_the_runs_of_a_tenant_become_warm_and_learn_the_same(
    broker: ScriptedBroker, agent: AgentProcess, linear: str
) -> None:
    cold_seconds, cold_output = await _run(broker, "first-1", linear)
    async with asyncio.timeout(90):
        for number in itertools.count():
            warm_seconds, warm_output = await _run(broker, f"next{number}-1", linear)
            assert warm_output == cold_output
            if warm_seconds < cold_seconds / 2:
                return
            await asyncio.sleep(2.0)


async def _run(broker: ScriptedBroker, run_id: str, script: str) -> tuple[float, bytes]:
    """The CPU seconds of a run, and its output."""
    await broker.want(wanted_run(run_id, script, arguments=SHORT, target=2.0))
    await until(lambda: broker.heard.exit(run_id), seconds=60.0)
    status = broker.heard.exit(run_id)
    assert status is not None
    assert status.exit_code == 0, status.log_tail
    return status.cpu_seconds, broker.heard.output(run_id)
