"""Three machines with addresses of their own: one has the broker, one joins, and a tenant asks from the third."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from testing.hosts import Host, hosts
from testing.lab import POLL_SECONDS, Lab
from testing.product import processes_of
from testing.product_use import running_product
from testing.until import until
from tiercel.core.trust.certificates import Identity

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SOON = {"TIERCEL_LEASE_SECONDS": "4", "TIERCEL_HEARTBEAT_SECONDS": "1"}
SHORT_LIVED = {"TIERCEL_CERTIFICATE_SECONDS": "40"}
MOMENT = timedelta(seconds=1)
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


async def test_certificates_run_out_while_jobs_run_and_who_was_cut_off_has_a_way_back(tmp_path: Path) -> None:
    with hosts("broker", "far", "cut", "user") as (broker, far, cut, user):
        async with running_product(tmp_path, "--listen", broker.address, host=broker, environment=SOON | SHORT_LIVED):
            lab = Lab(tmp_path, broker, user)
            try:
                await asyncio.gather(lab.join(far, "far"), lab.join(cut, "cut"))
                await lab.until("nodes", id="cut", online=True)
                cut.cut_off()
                await certificates_run_out_and_nothing_is_heard_of_it(lab)
                await who_was_cut_off_joins_again(lab, cut)
            finally:
                cut.connect()
                await asyncio.gather(lab.leave(far, "far"), lab.leave(cut, "cut"))


async def certificates_run_out_and_nothing_is_heard_of_it(lab: Lab) -> None:
    local = next(node["id"] for node in (await lab.ask("nodes", "--json")).content if node["id"] not in ("far", "cut"))
    await asyncio.gather(*(lab.operate("node", "drain", name) for name in (local, "cut")))
    job = await lab.submit("line", "0.6", "1.5", script="numpy_linear.py")
    await lab.until("endpoints", name="line", live_version=1, node_id="far")
    # Of all that the doors show and that nodes have now, nothing counts any more at that moment.
    over = max(certificate_of(lab, name).not_valid_after_utc for name in ("far", "cut"))
    epoch = (await lab.until("show", job, state="running"))["epoch"]
    while datetime.now(UTC) < over + MOMENT:
        await lab.ask("infer", "line", text=QUESTION)
        await asyncio.sleep(POLL_SECONDS)  # several a second are no other question than one
    assert certificate_of(lab, "cut").not_valid_after_utc < datetime.now(UTC)
    assert certificate_of(lab, "far").not_valid_after_utc > datetime.now(UTC)
    shown = await lab.until("show", job, state="running", node_id="far")
    assert shown["attempts"] == 1
    assert shown["epoch"] > epoch


async def who_was_cut_off_joins_again(lab: Lab, cut: Host) -> None:
    log = lab.folder / "cut" / "agent.log"
    agent = (lab.folder / "cut" / "agent" / "agent.lock").read_text()
    await lab.until("nodes", id="cut", online=False)
    cut.connect()
    await until(lambda: "ran out at" in log.read_text(), seconds=30)
    assert "give this machine a new line of 'tiercel node token'" in log.read_text()
    await lab.join(cut, "cut", "--no-start")  # by the same name, beside the agent that runs
    await lab.until("nodes", id="cut", online=True)
    assert (lab.folder / "cut" / "agent" / "agent.lock").read_text() == agent
    # Once by what dials, and once by what renews, however often these tried.
    assert log.read_text().count("ran out at") <= 2


def certificate_of(lab: Lab, node: str) -> x509.Certificate:
    return Identity.from_file((lab.folder / node / "agent" / "identity.pem").read_bytes()).certificate
