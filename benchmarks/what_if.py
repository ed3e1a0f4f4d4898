"""What-ifs against what then came, simulated: ``python -m benchmarks.what_if``; two minutes.

Twelve jobs of the live trial's programs run on two nodes, with earlier runs of each known. After a sixth and a third of
the time that all of it takes, the scheduler's snapshot is asked when tiers will be reached as things are. The runs that
follow lose CPU time to each other, and differ from earlier ones as live runs do; a what-if knows neither. With "later"
the jobs come within 20 s, and a what-if does not know of those to come.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from benchmarks.simulated_workloads import past_runs
from tiercel.broker.scheduling.interface import Plan, Snapshot
from tiercel.broker.scheduling.registry import AnyPolicy, create_policy
from tiercel.broker.simulation import DrawnJobs, MachineSettings, Result, Scenario, equal_nodes, simulate
from tiercel.broker.simulation.arrivals import Uniform
from tiercel.broker.simulation.cluster import SLICED
from tiercel.broker.simulation.presets import measured_kinds
from tiercel.broker.what_if.answer import answer
from tiercel.broker.what_if.present import Present, Question, bounded
from tiercel.core.what_if import Changes, TierPrediction

POLICIES = ("fair", "fifo", "utility")
JOBS, NODES = 12, 2
# A tier that comes sooner than so many seconds is there before anybody has read the answer.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Settled:
    """A prediction and what came.

    Attributes:
        error: (predicted - came) / came.
        within: Whether it came within the band.
    """

    error: float
    within: bool


class Watching:
    """A policy that keeps what it is shown first at or after some moments."""

    def __init__(self, policy: AnyPolicy, moments: tuple[float, ...]) -> None:
        self.name = policy.name
        self.seen: list[Snapshot] = []
        self._policy, self._moments = policy, list(moments)

    def initial_state(self) -> Any:
        """As the policy's."""
        return self._policy.initial_state()

    def plan(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """As the policy's."""
        if self._moments and snapshot.now >= self._moments[0]:
            del self._moments[0]
            self.seen.append(snapshot)
        return self._policy.plan(snapshot, state)


def settled(policy: str, seed: int, arrive_within: float) -> Iterator[Settled]:
    """All predictions of one run."""
    kinds = measured_kinds()
    scenario = Scenario(
        nodes=equal_nodes(NODES),
        jobs=DrawnJobs(kinds, JOBS, Uniform(arrive_within)),
        machines=MachineSettings(colocation=SLICED),
        history={kind.name: past_runs(kind) for kind in kinds},
    )
    makespan = simulate(scenario, policy, seed).makespan
    watching = Watching(create_policy(policy), (makespan / 6, makespan / 3))
    came = simulate(scenario, watching, seed)
    for seen in watching.seen:
        shown = Snapshot(seen.now, seen.trigger, seen.jobs, seen.nodes, seen.endpoints, seen.history, seen.restarts)
        found = answer(Question(bounded(Present(shown, policy, {}, 1.0)), Changes()))
        for job in found.jobs:
            for tier in job.tiers:
                yield from _settled(tier, _seconds(came, job.id, tier.tier, seen.now))


def _seconds(came: Result, job_id: str, tier: int, now: float) -> float | None:
    job = next(each for each in came.jobs if each.id == job_id)
    seconds = job.time_to_tier(tier)
    return None if seconds is None else job.arrived_at + seconds - now


def _settled(tier: TierPrediction, came: float | None) -> Iterator[Settled]:
    if tier.present is not None and came is not None and came > _LEAST_SECONDS:
        yield Settled((tier.present.seconds - came) / came, tier.present.low <= came <= tier.present.high)


def main(seeds: Annotated[int, typer.Option(min=1, help="Runs of each policy.")] = 5) -> None:
    """Compare, and print."""
    print(
        f"{'policy':9} {'jobs':8} {'predictions':>11} {'median error':>12} {'quartiles':>16} {'bias':>7} {'in band':>8}"
    )
    for policy in POLICIES:
        for name, within in (("there", 0.01), ("later", 20.0)):
            found = [each for seed in range(seeds) for each in settled(policy, seed, within)]
            first, middle, third = statistics.quantiles((abs(each.error) for each in found), n=4)
            bias = statistics.median(each.error for each in found)
            part = sum(each.within for each in found) / len(found)
            print(
                f"{policy:9} {name:8} {len(found):11} {middle:12.1%} {first:7.1%} {third:8.1%} {bias:7.1%} {part:8.0%}"
            )


if __name__ == "__main__":
    typer.run(main)
