"""A job that trains is sent to another node: real agents, real training, and whoever has to die in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testing.product_use import SCRIPTS, digits_job
from testing.two_nodes import JOB_SECONDS, TwoNodes, two_nodes
from testing.until import until
from tiercel import JobState, Script, TierState
from tiercel.broker.api import checkpoints
from tiercel.broker.client import StateEvent, TierEvent

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]


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


def went_on_after(nodes: TwoNodes, run_id: str) -> int:
    """The epoch from whose checkpoint a run went on; 0 when it began from the beginning."""
    found = [line for line in nodes.output(run_id).splitlines() if line.startswith("going on after epoch ")]
    return int(found[0].split()[-1]) if found else 0


async def goes_on(nodes: TwoNodes, job_id: str, attempt: int) -> None:
    """Wait until that run of the job has gone on from a checkpoint, and trains."""

    def trains() -> bool:
        job = nodes.job(job_id)
        return bool(job.run_id == f"{job_id}-{attempt}" and job.state is JobState.RUNNING and job.last_sequence)

    await until(trains, seconds=JOB_SECONDS)
    await until(lambda: went_on_after(nodes, f"{job_id}-{attempt}") >= 1, seconds=JOB_SECONDS)


async def test_whoever_dies_in_between_a_moved_job_goes_on_from_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job, between its two tiers all the while; that a move goes well is in test_one_address.py."""
    go = tmp_path / "go"
    async with two_nodes(tmp_path) as nodes:
        async with nodes.client() as alice:
            arguments = ("--step-sleep-seconds", "0.01", "--waits-for", str(go), "--epochs", "10000")
            spec = digits_job(targets=(0.70, 0.93), arguments=arguments, max_epochs=10_000)
            job_id = (await alice.submit(spec)).id
        await until(lambda: nodes.job(job_id).tiers[0].state is TierState.DELIVERED, seconds=JOB_SECONDS)
        assert nodes.job(job_id).node_id == "n1"

        await the_source_dies_while_it_sends_the_checkpoint(nodes, job_id, monkeypatch)
        await the_broker_is_restarted_before_it_has_the_checkpoint(nodes, job_id, monkeypatch)
        await the_target_dies_before_it_has_the_checkpoint(nodes, job_id, monkeypatch)

        go.touch()
        async with nodes.client() as alice:
            job = await alice.job(job_id).wait(JOB_SECONDS)
            assert (job.state, job.attempts, job.node_id) == (JobState.COMPLETED, 5, "n1"), job.reason
            events = [event async for event in alice.job(job_id).events()]
            (endpoint,) = await alice.list_endpoints()
        tiers = [event.tier for event in events if isinstance(event, TierEvent)]
        assert [tier.version for tier in job.tiers] == [1, 2]
        assert Counter(tier.number for tier in tiers if tier.state is TierState.DELIVERED) == {1: 1, 2: 1}
        assert [(version.version, version.tier) for version in endpoint.versions] == [(1, 1), (2, 2)]
        reasons = [event.reason for event in events if isinstance(event, StateEvent)]
        assert "starting on node n1 from the checkpoint that the broker holds" in reasons
        assert nodes.carried() == []


async def the_source_dies_while_it_sends_the_checkpoint(
    nodes: TwoNodes, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next life sends it, and the job goes where it was to go."""
    gate = hold_up(monkeypatch, "ingest")
    await nodes.order_move(job_id, "n2")
    await gate.wait_reached()
    await nodes.agents["n1"].kill()
    gate.open()
    monkeypatch.undo()
    await nodes.start_agent("n1")
    await goes_on(nodes, job_id, 2)
    assert nodes.job(job_id).node_id == "n2"


async def the_broker_is_restarted_before_it_has_the_checkpoint(
    nodes: TwoNodes, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still gets it, and the job its new node."""
    gate = hold_up(monkeypatch, "ingest")
    await nodes.order_move(job_id, "n1")
    await gate.wait_reached()
    await nodes.stop_broker()
    gate.open()
    monkeypatch.undo()
    nodes.settings |= {"lease_seconds": 5.0, "gone_after_seconds": 8.0}  # for whoever dies next
    await nodes.start_broker()
    await goes_on(nodes, job_id, 3)
    assert nodes.job(job_id).node_id == "n1"


async def the_target_dies_before_it_has_the_checkpoint(
    nodes: TwoNodes, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has it, and sends it to another node, which happens to be the source."""
    gate = hold_up(monkeypatch, "find_for")
    await nodes.order_move(job_id, "n2")
    await gate.wait_reached()
    await nodes.agents["n2"].kill()
    gate.open()
    monkeypatch.undo()
    await goes_on(nodes, job_id, 5)
    assert nodes.job(job_id).node_id == "n1"


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
