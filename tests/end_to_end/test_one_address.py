"""One endpoint, asked at every node while its job moves, the broker is away and an inference server dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from testing.product_use import digits_job
from testing.two_nodes import JOB_SECONDS, NODES, TwoNodes, two_nodes
from testing.until import until
from tiercel import JobInfo, JobState, TierState
from tiercel.broker.client import StateEvent, TierEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

BODY = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 8, 8], "data": [0.0] * 64}]}


@dataclass
class Asked:
    """What an application at one node saw."""

    versions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def serving_of(nodes: TwoNodes, node: str) -> dict[str, str]:
    content: dict[str, str] = json.loads((nodes.folder / node / "agent" / "serving.json").read_text())
    return content


def pid_of(nodes: TwoNodes, node: str) -> int:
    """The inference server of a node; 0 while none is up."""
    with contextlib.suppress(FileNotFoundError):
        return int(serving_of(nodes, node)["pid"])
    return 0


async def ask(session: aiohttp.ClientSession, nodes: TwoNodes, node: str) -> str:
    """The version that answers at a node's server, or what is said instead."""
    url = f"http://{serving_of(nodes, node)['http']}/v2/models/digits/infer"
    async with session.post(url, json=BODY) as response:
        content = await response.json()
        return str(content["model_version"]) if response.status == 200 else f"{response.status}: {content}"


@contextlib.asynccontextmanager
async def asking(nodes: TwoNodes) -> AsyncIterator[dict[str, Asked]]:
    """Applications that ask at every node, one after the other, all the while."""
    seen = {node: Asked() for node in NODES}

    async def ask_on(node: str) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    said = await ask(session, nodes, node)
                except (aiohttp.ClientError, OSError) as error:
                    said = repr(error)
                (seen[node].versions if said.isdigit() else seen[node].failures).append(said)
                await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(ask_on(node)) for node in NODES]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answers_everywhere(nodes: TwoNodes) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(JOB_SECONDS):
        for node in NODES:
            while not (await ask(session, nodes, node)).isdigit():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)


def it_went_on_from_its_epoch(nodes: TwoNodes, job: JobInfo, events: Sequence[object]) -> None:
    assert [tier.version for tier in job.tiers] == [1, 2]
    tiers = [event.tier for event in events if isinstance(event, TierEvent)]
    assert Counter(tier.number for tier in tiers if tier.state is TierState.DELIVERED) == {1: 1, 2: 1}
    (line,) = [each for each in nodes.output(f"{job.id}-2").splitlines() if each.startswith("going on after epoch ")]
    assert int(line.split()[-1]) >= 1
    assert nodes.carried() == []
    first, second = job.starts  # what it took is measured, and shown
    assert (first.node_id, first.stop_seconds, second.node_id) == ("n1", None, "n2")
    assert second.stop_seconds is not None
    took = (first.seconds, first.cpu_seconds, second.seconds, second.cpu_seconds, second.stop_seconds)
    assert all(0 < seconds < JOB_SECONDS for seconds in took)
    assert [each["node_id"] for each in job.to_json()["starts"]] == ["n1", "n2"]
    reasons = [event.reason for event in events if isinstance(event, StateEvent)]
    assert "starting on node n2 from the checkpoint that came from node n1" in reasons
    assert any(reason.startswith("moving to node n2") for reason in reasons)


async def test_an_endpoint_is_asked_at_any_node_whatever_becomes_of_its_job(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        async with nodes.client() as alice:
            go = tmp_path / "go"
            arguments = ("--waits-for", str(go), "--epochs", "10000")
            spec = digits_job(targets=(0.70, 0.93), arguments=arguments, max_epochs=10_000)
            job_id = (await alice.submit(spec)).id
        await until(lambda: nodes.job(job_id).tiers[0].state is TierState.DELIVERED, seconds=JOB_SECONDS)
        await answers_everywhere(nodes)
        async with asking(nodes) as seen:
            await nodes.order_move(job_id, "n2")
            go.touch()
            async with nodes.client() as alice:
                job = await alice.job(job_id).wait(JOB_SECONDS)
                events = [event async for event in alice.job(job_id).events()]
            assert (job.state, job.node_id, job.attempts) == (JobState.COMPLETED, "n2", 2), job.reason
            await until(lambda: all(each.versions[-1:] == ["2"] for each in seen.values()), seconds=JOB_SECONDS)
            # What is left of the old node's model goes once both servers go by a table that names the new one.
            log = tmp_path / "n1" / "agent.log"
            await until(lambda: "no version of digits answers here any more" in log.read_text(), seconds=60.0)
            assert "not all nodes know" not in log.read_text(), "it gave up waiting for that"
            await asyncio.sleep(0.5)
        it_went_on_from_its_epoch(nodes, job, events)
        for node, application in seen.items():
            assert application.failures == [], node
            assert application.versions == sorted(application.versions), node
            assert set(application.versions) == {"1", "2"}, node

        await nodes.stop_broker()
        async with asking(nodes) as seen:
            await asyncio.sleep(0.5)
            before = pid_of(nodes, "n2")
            os.kill(before, signal.SIGKILL)
            # Its agent starts another one at its old address, without the broker.
            await until(lambda: pid_of(nodes, "n2") not in {0, before}, seconds=60.0)
            await answers_everywhere(nodes)
            counted = len(seen["n1"].versions)
            await until(lambda: len(seen["n1"].versions) > counted + 20, seconds=60.0)
            for application in seen.values():
                application.failures.clear()
            await asyncio.sleep(0.5)
        assert [application.failures for application in seen.values()] == [[], []]
        await nodes.start_broker()
        await answers_everywhere(nodes)
