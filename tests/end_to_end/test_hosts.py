"""Three machines with addresses of their own: one has the broker, one joins, and a tenant asks from the third."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.hosts import Host, hosts
from testing.lab import Lab
from testing.product import processes_of
from testing.product_use import running_product

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SOON = {"TIERCEL_LEASE_SECONDS": "4", "TIERCEL_HEARTBEAT_SECONDS": "1"}
QUESTION = json.dumps({"input": [[0.5] * 6]})


async def test_a_node_is_cut_off_comes_back_and_is_drained(tmp_path: Path) -> None:
    with hosts("broker", "far", "user") as (broker, far, user):
        async with running_product(tmp_path, "--listen", broker.address, host=broker, environment=SOON):
            lab = Lab(tmp_path, broker, user)
            await lab.join(far, "far")
            try:
                await a_job_on_the_far_node_answers_elsewhere(lab, far)
            finally:
                await lab.leave(far, "far")
        assert not processes_of(tmp_path / "far")


async def a_job_on_the_far_node_answers_elsewhere(lab: Lab, far: Host) -> None:
    local = next(node["id"] for node in (await lab.ask("nodes", "--json")).content if node["id"] != "far")
    await lab.operate("node", "drain", local)
    job = await lab.submit("line", "0.6", "1.5", script="numpy_linear.py")
    await lab.until("endpoints", name="line", live_version=1, node_id="far")
    await lab.ask("infer", "line", text=QUESTION)

    far.cut_off()
    await lab.until("nodes", id="far", online=False)
    assert (await lab.until("show", job, state="disconnected"))["node_id"] == "far"
    far.connect()
    await lab.until("nodes", id="far", online=True)
    assert (await lab.until("show", job, state="running"))["attempts"] == 1  # the very run that it had
    await lab.ask("infer", "line", text=QUESTION)

    await lab.operate("node", "undrain", local)
    drained = await lab.operate("node", "drain", "far", "--migrate", "--wait", "--timeout", "2m")
    assert "1 job is there and goes elsewhere" in drained.output
    assert "It goes on answering for line" in drained.output
    assert drained.output.endswith("Nothing is left on node far.\n")
    assert (await lab.until("nodes", id="far"))["drain"] == "move"
    moved = await lab.until("show", job, state="running", node_id=local)
    assert moved["attempts"] == 2
    await lab.ask("infer", "line", text=QUESTION)
    await lab.ask("cancel", job)
