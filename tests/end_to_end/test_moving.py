"""A job that trains is sent to another node: real agents, real training, and whoever has to die in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from testing.product_use import SCRIPTS, digits_job, get_json
from testing.two_nodes import JOB_SECONDS, TwoNodes, two_nodes
from testing.until import until
from tiercel import JobState, Script, TierState
from tiercel.broker.api import checkpoints
from tiercel.broker.client import JobInfo, StateEvent, TierEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

# It learns slowly enough that the second tier is still ahead when the first one is delivered.
SLOW = ("--step-sleep-seconds", "0.02")


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    async with two_nodes(tmp_path) as running:
        yield running


class Gate:
    """Holds up what passes through it, once, until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def pass_through(self) -> None:
        """Wait until it is open."""
        self.reached.set()
        await self._open.wait()

    async def wait_reached(self) -> None:
        """Wait until somebody stands before it."""
        async with asyncio.timeout(JOB_SECONDS):
            await self.reached.wait()

    def open(self) -> None:
        """Let everybody through."""
        self._open.set()


def hold_up(monkeypatch: pytest.MonkeyPatch, name: str) -> Gate:
    """Have the broker wait before it takes in (``ingest``) or looks for (``find_for``) a checkpoint."""
    gate = Gate()
    real: Callable[..., Any] = getattr(checkpoints, name)

    async def waiting(*arguments: Any) -> Any:
        await gate.pass_through()
        return await real(*arguments)

    monkeypatch.setattr(checkpoints, name, waiting)
    return gate


async def run_to_the_end(nodes: TwoNodes, job_id: str) -> JobInfo:
    """The job once it has finished, all of its tiers delivered once."""
    async with nodes.client() as alice:
        job = await alice.job(job_id).wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        tiers = [event.tier async for event in alice.job(job_id).events() if isinstance(event, TierEvent)]
        (endpoint,) = await alice.list_endpoints()
    assert [tier.version for tier in job.tiers] == [1, 2]
    assert Counter(tier.number for tier in tiers if tier.state is TierState.DELIVERED) == {1: 1, 2: 1}
    assert [(version.version, version.tier) for version in endpoint.versions] == [(1, 1), (2, 2)]
    return job


async def reasons_of(nodes: TwoNodes, job_id: str) -> list[str]:
    """What the job said of its states, in order."""
    async with nodes.client() as alice:
        return [event.reason async for event in alice.job(job_id).events() if isinstance(event, StateEvent)]


async def submit(nodes: TwoNodes) -> str:
    """A job that trains on n1, its first tier delivered and its second ahead."""
    async with nodes.client() as alice:
        handle = await alice.submit(digits_job(targets=(0.70, 0.93), arguments=SLOW))
    await until(lambda: nodes.job(handle.id).tiers[0].state is TierState.DELIVERED, seconds=JOB_SECONDS)
    assert nodes.job(handle.id).node_id == "n1"
    return handle.id


def went_on_after(nodes: TwoNodes, run_id: str) -> int:
    """The epoch from whose checkpoint a run went on; 0 when it began from the beginning."""
    found = [line for line in nodes.output(run_id).splitlines() if line.startswith("going on after epoch ")]
    return int(found[0].split()[-1]) if found else 0


async def test_a_moved_job_goes_on_from_its_epoch_and_its_endpoint_answers_from_the_new_node(nodes: TwoNodes) -> None:
    job_id = await submit(nodes)
    await nodes.order_move(job_id, "n2")
    job = await run_to_the_end(nodes, job_id)
    assert (job.attempts, job.node_id) == (2, "n2")
    assert went_on_after(nodes, f"{job_id}-2") >= 1
    assert nodes.carried() == []
    first, second = job.starts  # what it took is measured, and shown
    assert (first.node_id, first.stop_seconds, second.node_id) == ("n1", None, "n2")
    assert second.stop_seconds is not None
    took = (first.seconds, first.cpu_seconds, second.seconds, second.cpu_seconds, second.stop_seconds)
    assert all(0 < seconds < JOB_SECONDS for seconds in took)
    assert [each["node_id"] for each in job.to_json()["starts"]] == ["n1", "n2"]
    reasons = await reasons_of(nodes, job_id)
    assert "starting on node n2 from the checkpoint that came from node n1" in reasons
    assert any(reason.startswith("moving to node n2") for reason in reasons)
    async with nodes.client() as alice:
        (endpoint,) = await alice.list_endpoints()
        answer = await alice.infer("digits", {"input": [[[0.0] * 8] * 8]})
    assert (endpoint.live_version, answer.version) == (2, 2)
    status, ready = await get_json(f"http://{endpoint.serving_http}/v2/models/digits/versions/2/ready")
    assert status == 200, ready


async def test_a_source_that_dies_while_it_sends_the_checkpoint_goes_on_by_itself(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await submit(nodes)
    gate = hold_up(monkeypatch, "ingest")
    await nodes.order_move(job_id, "n2")
    await gate.wait_reached()
    await nodes.agents["n1"].kill()
    gate.open()
    await nodes.start_agent("n1")
    job = await run_to_the_end(nodes, job_id)
    assert (job.attempts, job.node_id) == (2, "n1")
    assert went_on_after(nodes, f"{job_id}-2") >= 1
    assert any("could not be moved to node n2" in reason for reason in await reasons_of(nodes, job_id))


async def test_a_broker_that_is_restarted_in_between_still_gets_the_checkpoint(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await submit(nodes)
    gate = hold_up(monkeypatch, "ingest")
    await nodes.order_move(job_id, "n2")
    await gate.wait_reached()
    await nodes.stop_broker()
    gate.open()
    await nodes.start_broker()
    job = await run_to_the_end(nodes, job_id)
    assert (job.attempts, job.node_id) == (2, "n2")
    assert went_on_after(nodes, f"{job_id}-2") >= 1


async def test_a_target_that_dies_before_it_has_the_checkpoint_leaves_it_for_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_nodes(tmp_path, lease_seconds=5.0, gone_after_seconds=8.0) as nodes:
        job_id = await submit(nodes)
        gate = hold_up(monkeypatch, "find_for")
        await nodes.order_move(job_id, "n2")
        await gate.wait_reached()
        await nodes.agents["n2"].kill()
        gate.open()
        job = await run_to_the_end(nodes, job_id)
        assert (job.attempts, job.node_id) == (3, "n1")
        assert went_on_after(nodes, f"{job_id}-3") >= 1
        assert "starting on node n1 from the checkpoint that the broker holds" in await reasons_of(nodes, job_id)
        assert nodes.carried() == []


async def test_policy_specon_sends_a_job_that_hardly_improves_away_from_those_that_do(tmp_path: Path) -> None:
    """All three begin on n1; each report is a reading, and each half second a round.

    Growth is per second, so a machine that is busy must not look like a job that has converged: hence the small alpha.
    """
    places = {"placement": "given", "given": "rises1=n1,rises2=n1,flattens=n1"}
    options = places | {"unit": "reports", "interval": 1, "alpha": 0.001, "round_seconds": 0.5}
    async with two_nodes(tmp_path, policy="specon", policy_options=options) as nodes, nodes.client() as alice:
        ids = {}
        for name in ("rises1", "rises2", "flattens"):
            script = Script("curve.py", (SCRIPTS / "made_up_curve.py").read_bytes())
            curve = {"module": "", "script": script, "metric": "score", "arguments": (name.rstrip("12"),)}
            spec = digits_job(name, (10.0,), max_epochs=10_000, **curve)
            ids[name] = (await alice.submit(spec)).id
        moved = ids["flattens"]
        await until(
            lambda: nodes.job(moved).run_id == f"{moved}-2" and nodes.job(moved).last_sequence, seconds=JOB_SECONDS
        )
        assert {name: nodes.job(job_id).node_id for name, job_id in ids.items()} == {
            "rises1": "n1",
            "rises2": "n1",
            "flattens": "n2",
        }
        await until(lambda: went_on_after(nodes, f"{moved}-2") >= 1, seconds=JOB_SECONDS)
        decisions = (await alice.job(moved).explain()).decisions
        assert any("moved from n1 to n2 because it hardly improves any more" in each.share.reason for each in decisions)
        for job_id in ids.values():
            await alice.job(job_id).cancel()
            await alice.job(job_id).wait(JOB_SECONDS)
