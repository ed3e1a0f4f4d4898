"""Three machines with addresses of their own: one has the broker, one joins, and a tenant asks from the third."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testing.hosts import Host, hosts
from testing.product import processes_of
from testing.product_use import JOB_SECONDS, SCRIPTS, Command, running_product, tiercel
from tiercel.broker.client.state_dir import read_addresses, read_token

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SOON = {"TIERCEL_LEASE_SECONDS": "4", "TIERCEL_HEARTBEAT_SECONDS": "1"}
QUESTION = json.dumps({"input": [[0.5] * 6]})


@dataclass(frozen=True)
class Lab:
    """A broker's machine with its state, and a tenant on another one."""

    folder: Path
    broker: Host
    user: Host

    async def operate(self, *arguments: str) -> Command:
        """The operator's command, on the broker's machine."""
        done = await tiercel(*arguments, state_dir=self.folder / "state", host=self.broker)
        assert done.exit_code == 0, done.errors
        return done

    async def ask(self, *arguments: str, text: str | None = None) -> Command:
        """Alice's command, on her own machine."""
        addresses = read_addresses(self.folder / "state")
        environment = {
            "TIERCEL_TOKEN": read_token(self.folder / "state", "alice"),
            "TIERCEL_BROKER_PIN": addresses["pin"],
        }
        return await tiercel(
            *arguments,
            "--broker",
            addresses["broker_tls"],
            state_dir=self.folder / "user",
            host=self.user,
            environment=environment,
            text=text,
        )

    async def until(self, *arguments: str, **wanted: object) -> Any:
        """Wait until what a command says has these values; returns it."""
        async with asyncio.timeout(JOB_SECONDS):
            while True:
                found = (await self.ask(*arguments, "--json")).content
                lines = found if isinstance(found, list) else [found]
                fitting = [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]
                if fitting:
                    return fitting[0]
                await asyncio.sleep(0.2)

    async def submit(self, *arguments: str) -> str:
        """A job that has a model soon and goes on until it is ended; returns its id."""
        script = ("--script", str(SCRIPTS / "linear.py"), "--arg=--epochs=4000", "--arg=--step-sleep-seconds=0.02")
        ladder = ("--endpoint", "line", "--metric", "accuracy", "--tier", "0.6", "--tier", "1.5")
        done = await self.ask("submit", *script, *ladder, "--max-epochs", "4000", *arguments, "--json")
        assert done.exit_code == 0, done.errors
        return str(done.content["id"])


async def test_a_node_is_cut_off_comes_back_and_is_drained(tmp_path: Path) -> None:
    with hosts("broker", "far", "user") as (broker, far, user):
        async with running_product(tmp_path, "--listen", broker.address, host=broker, environment=SOON):
            lab = Lab(tmp_path, broker, user)
            await join(lab, far)
            try:
                await a_job_on_the_far_node_answers_elsewhere(lab, far)
            finally:
                await tiercel("down", state_dir=tmp_path / "far", host=far)
        assert not processes_of(tmp_path / "far")


async def join(lab: Lab, far: Host) -> None:
    line = (await lab.operate("node", "token")).output.split()
    options = ("--token", "-", "--node-id", "far", "--runtime", "process", "--cpu-cores", "1", "--detach")
    joined = await tiercel("join", line[2], *options, state_dir=lab.folder / "far", host=far, text=line[4])
    assert joined.exit_code == 0, joined.errors


async def a_job_on_the_far_node_answers_elsewhere(lab: Lab, far: Host) -> None:
    local = next(node["id"] for node in (await lab.ask("nodes", "--json")).content if node["id"] != "far")
    await lab.operate("node", "drain", local)
    job = await lab.submit()
    await lab.until("endpoints", name="line", live_version=1, node_id="far")
    assert (await lab.ask("infer", "line", text=QUESTION)).exit_code == 0

    far.cut_off()
    await lab.until("nodes", id="far", online=False)
    assert (await lab.until("show", job, state="disconnected"))["node_id"] == "far"
    far.connect()
    await lab.until("nodes", id="far", online=True)
    assert (await lab.until("show", job, state="running"))["attempts"] == 1  # the very run that it had
    assert (await lab.ask("infer", "line", text=QUESTION)).exit_code == 0

    await lab.operate("node", "undrain", local)
    drained = await lab.operate("node", "drain", "far", "--migrate")
    assert "1 job is there and goes elsewhere" in drained.output
    assert "It goes on answering for line" in drained.output
    moved = await lab.until("show", job, state="running", node_id=local)
    assert moved["attempts"] == 2
    assert (await lab.ask("infer", "line", text=QUESTION)).exit_code == 0
    assert (await lab.until("nodes", id="far", jobs=0))["drain"] == "move"
    assert (await lab.ask("cancel", job)).exit_code == 0
