"""Versions of 20 MB on their way between three machines whose narrow cables are pulled, and which begin anew."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testing.asker import asking, wait_answered
from testing.hosts import Host, hosts
from testing.lab import POLL_SECONDS, Lab
from testing.product import Product
from testing.product_use import SCRIPTS, read_pid, running_product, tiercel
from testing.until import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(420)]

SOON = {"TIERCEL_LEASE_SECONDS": "10", "TIERCEL_HEARTBEAT_SECONDS": "1", "TIERCEL_GONE_AFTER_SECONDS": "30"}
"""Jobs of a machine that died begin elsewhere after half a minute, unless the policy moves them sooner."""
MEGABYTES = 20
NARROW = 16_000_000
"""Bits a second: ten seconds for a version."""
NARROWER = 2_000_000
"""Nobody waits for the rest of it."""
PART_BYTES = 4e6
PART_AGAIN = 5
"""Megabytes beside a version that a machine may hear: what was on its way when its cable was pulled, and all else."""
SHORT_SECONDS = 2.0
"""Far less than a lease, of which a copy in front of heartbeats on a narrow cable takes its part, too."""
ENDPOINT = "weighty"


class Scene:
    """The broker's machine, and two others that answer for one endpoint."""

    def __init__(self, lab: Lab, near: Host, far: Host) -> None:
        self.lab, self.near, self.far = lab, near, far
        self.stage = lab.folder / "stage"
        self.lines: list[dict[str, Any]] = []
        self.token = ""  # of the near machine

    async def begin(self) -> str:
        """A job at the near machine, whose first version answers at both; returns its id."""
        local = next(node["id"] for node in (await self.lab.ask("nodes", "--json")).content)
        await self.lab.operate("node", "drain", local)
        self.token = await self.lab.join(self.near, "near")
        self.stage.write_text("1")
        program = ("--script", str(SCRIPTS / "weighty.py"), f"--arg=--megabytes={MEGABYTES}")
        ladder = [word for tier in ("0.55", "0.65", "0.75") for word in ("--tier", tier)]
        about = (
            "--endpoint",
            ENDPOINT,
            "--metric",
            "accuracy",
            *ladder,
            "--max-epochs",
            "100000",
            "--set",
            "replicas=2",
        )
        submitted = await self.lab.ask("submit", *program, f"--arg=--stage={self.stage}", *about, "--json")
        await self.lab.until("endpoints", name=ENDPOINT, live_version=1, node_id="near")
        await self.lab.join(self.far, "far")
        await self.wait_answering({"near": 1, "far": 1})
        return str(submitted.content["id"])

    async def endpoint(self) -> Any:
        return await self.lab.until("endpoints", name=ENDPOINT)

    async def wait_answering(self, wanted: dict[str, int]) -> None:
        """Wait until these versions answer, by node."""
        async with asyncio.timeout(90):
            while True:
                places = (await self.endpoint())["places"]
                if {place["node_id"]: place["answering_version"] for place in places} == wanted:
                    return
                await asyncio.sleep(POLL_SECONDS)

    async def problems(self) -> str:
        """What ``tiercel status`` tells the operator to see to."""
        told = await tiercel("status", "--json", state_dir=self.lab.state, host=self.lab.broker)
        return "\n".join(f"{each['about']}: {each['what']}" for each in told.content["problems"])

    def bytes_in(self, folder: str) -> int:
        """How much of what is on its way is on a machine's disk."""
        sizes = 0
        for path in (self.lab.folder / folder).rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # put in its place meanwhile
                sizes += path.stat().st_size if path.is_file() else 0
        return sizes


async def test_copies_whose_cable_is_pulled_or_whose_source_dies_are_whole_or_not_there(tmp_path: Path) -> None:
    with hosts("broker", "near", "far", "user") as (broker, near, far, user):
        async with running_product(tmp_path, "--listen", broker.address, host=broker, environment=SOON) as product:
            lab = Lab(tmp_path, broker, user)
            scene = Scene(lab, near, far)
            try:
                job = await scene.begin()
                async with asking(lab, ENDPOINT, scene.lines, askers=1, pause_seconds=0.5):
                    await wait_answered(scene.lines, 3)
                    await a_cable_is_pulled(scene)
                    await the_source_dies(scene, job, product)
                assert not [line for line in scene.lines if line["outcome"] == "wrong"]
                assert {line.get("version") for line in scene.lines} >= {1, 2, 3}
            finally:
                far.connect()
                await asyncio.gather(lab.leave(near, "near"), lab.leave(far, "far"))


async def a_cable_is_pulled(scene: Scene) -> None:
    """First for less than a lease, then for longer: what is there does not wait for who is away."""
    staged = "far/agent/models/.staging"
    scene.far.narrow(NARROW)
    begun = scene.far.received_bytes()
    scene.stage.write_text("2")
    await until(lambda: scene.bytes_in(staged) > PART_BYTES)
    scene.far.cut_off()
    await asyncio.sleep(SHORT_SECONDS)
    scene.far.connect()
    held = scene.bytes_in(staged)
    await until(lambda: scene.bytes_in(staged) > held + PART_BYTES)  # it goes on
    scene.far.narrow(NARROWER)
    assert (await scene.endpoint())["live_version"] == 1
    scene.far.cut_off()
    await scene.lab.until("endpoints", name=ENDPOINT, live_version=2, answering_version=2)
    assert f"endpoint {ENDPOINT}: it does not answer on far" in await scene.problems()
    assert f"{ENDPOINT} on far: the node is offline" in (await scene.lab.ask("endpoints")).output
    explained = (await scene.lab.ask("explain", "--endpoint", ENDPOINT)).output
    assert "far, nothing answers yet (the node is offline)" in explained
    scene.far.widen()
    scene.far.connect()
    await scene.wait_answering({"near": 2, "far": 2})
    assert scene.bytes_in(staged) == 0
    assert scene.far.received_bytes() - begun < (MEGABYTES + PART_AGAIN) * 1e6, "it went on where it was cut off"
    assert await scene.problems() == ""


async def the_broker_and_a_receiver_begin_anew(scene: Scene, product: Product) -> None:
    """What has come to either of them stays, and more of it comes to the broker behind that."""
    os.kill(read_pid(scene.lab.folder / "far" / "agent" / "agent.lock"), signal.SIGKILL)
    await product.kill()
    (part,) = (scene.lab.state / "versions").glob(".*.part")
    held, copied = part.stat().st_size, scene.bytes_in("far/agent/models/.staging")
    await product.start()
    await until(lambda: part.stat().st_size > held)
    assert scene.bytes_in("far/agent/models/.staging") >= copied
    assert (await scene.endpoint())["live_version"] == 2, "it waits for the one that is not back yet"


async def the_source_dies(scene: Scene, job: str, product: Product) -> None:
    """While the broker has half of the version: the job goes on at the other machine, which delivers it."""
    held = scene.bytes_in("state/versions")
    scene.near.narrow(NARROW)
    scene.stage.write_text("3")
    await until(lambda: scene.bytes_in("state/versions") > held + PART_BYTES)
    await until(lambda: scene.bytes_in("far/agent/models/.staging") > PART_BYTES)  # passed on as it comes
    assert scene.bytes_in("state/versions") < held + MEGABYTES * 1e6
    await the_broker_and_a_receiver_begin_anew(scene, product)
    scene.near.kill()
    await scene.lab.until("nodes", id="near", online=False)
    await scene.lab.until("endpoints", name=ENDPOINT, live_version=3, answering_version=3, node_id="far")
    assert (await scene.lab.until("show", job))["attempts"] == 2
    assert f"{ENDPOINT} on 1 of 2 nodes: no other node is up" in (await scene.lab.ask("endpoints")).output
    scene.near.widen()
    await scene.lab.join(scene.near, "near", token=scene.token)
    await scene.wait_answering({"far": 3, "near": 3})
    assert scene.bytes_in("near/agent/models/.staging") == 0
    assert await scene.problems() == ""
