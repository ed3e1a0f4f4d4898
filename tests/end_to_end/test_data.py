"""Two real nodes of which one has the data: jobs go there, and wait for it while it is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from testing.product_use import digits_job
from testing.two_nodes import JOB_SECONDS, two_nodes
from testing.until import until
from tiercel import DataSet, InvalidSpecError, JobState, Script
from tiercel.core.declared_data import DataDeclarations

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

READER = b"""
import os
print(open(os.environ["TIERCEL_DATA_TABLE"]).read(), flush=True)
"""


async def test_jobs_go_where_their_data_is_and_wait_for_a_node_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("1,2,3")
    reading = replace(digits_job(), module="", script=Script("read.py", READER), arguments=(), data=(DataSet("table"),))
    async with two_nodes(tmp_path, lease_seconds=1.5, gone_after_seconds=600.0) as nodes, nodes.client() as alice:
        with pytest.raises(InvalidSpecError, match="no node has the data set 'table'; none has any"):
            await alice.submit(reading)
        DataDeclarations(tmp_path / "n2" / "agent").add("table", tmp_path / "table.csv")

        async def offered() -> bool:
            return [node.id for node in await alice.list_nodes() if node.data] == ["n2"]

        while not await offered():  # noqa: ASYNC110 - the broker tells nobody of it
            await asyncio.sleep(0.1)
        job = await (await alice.submit(reading)).wait()
        assert (job.node_id, nodes.output(f"{job.id}-1")) == ("n2", "1,2,3\n")

        await nodes.agents["n2"].kill()
        await until(lambda: [node.online for node in nodes._service.nodes()] == [True, False], seconds=JOB_SECONDS)
        waiting = await alice.submit(reading)
        job = (await alice.explain_job(waiting.id)).job
        assert job.state is JobState.PENDING
        await until(lambda: "data set table" in nodes.job(waiting.id).reason, seconds=JOB_SECONDS)
        await nodes.start_agent("n2")
        job = await waiting.wait()
        assert (job.node_id, nodes.output(f"{job.id}-1")) == ("n2", "1,2,3\n")
