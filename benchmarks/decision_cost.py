"""What one decision of each policy costs: ``python -m benchmarks.decision_cost``; under two minutes.

Jobs on nodes of 8 cores, 10 jobs and an endpoint each, 60 reports a job, three earlier runs of each of 23 workloads.
The decision that counts is one of many in a row, before which a few jobs (2 %) had a new report and one node in a
hundred lost a job and got another; the very first decision, when a policy knows nothing of any job yet, is shown beside
it. CPU time, of which a single thread uses one second a second on a machine with nothing else to do; the median of
thirty, since one in three also looks at fair shares and migrations and takes twice as long. What lives on from before
is kept out of the garbage collector, whose pauses would else be those of this script's own cluster.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar, Json
from tiercel.broker.scheduling.interface import (
    CurvePoint,
    EndpointView,
    JobView,
    NodeView,
    PastRun,
    Plan,
    Snapshot,
    Trigger,
)
from tiercel.broker.scheduling.registry import BUILT_IN, AnyPolicy, create_policy
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot
from tiercel.core.jobs import Direction, Observation, Resources, Tier, TierState, TierStatus
from tiercel.core.shares import Share

SIZES = ((100, 10), (1_000, 100), (10_000, 1_000))
GOALS_MS = {1_000: 10, 10_000: 100}
REPORTS = 60
REPORTING = 0.02
DECISIONS = 30
TENANTS = 7
WORKLOADS = 23
TRUE_WORK = (1.5 * REPORTS * 1.5, 1.5 * REPORTS * 4)
GIB = 1024**3
SEED = 1


class Cluster:
    """Jobs that learn along exponential curves, and endpoints, while decisions are made about them."""

    def __init__(self, jobs: int, nodes: int) -> None:
        self._random = random.Random(SEED)
        self._nodes = tuple(NodeView(f"node-{index:04}", 8.0, 64 * GIB) for index in range(nodes))
        self._count = 0
        self.now = 1_000_000.0
        self._jobs = {job.id: job for job in (self._new_job(index) for index in range(jobs))}
        self._endpoints = tuple(self._endpoint(index) for index in range(nodes))
        self._history = {f"workload-{number}": tuple(self._past_run() for _ in range(3)) for number in range(WORKLOADS)}

    def snapshot(self) -> Snapshot:
        """What a policy sees at present."""
        jobs = tuple(self._jobs.values())
        true_work = dict.fromkeys(self._jobs, TRUE_WORK)
        return OracleSnapshot(
            self.now, Trigger.INTERVAL, jobs, self._nodes, self._endpoints, self._history, true_work=true_work
        )

    def carry_out(self, plan: Plan) -> None:
        """Place jobs and give them and the endpoints their shares."""
        self._endpoints = tuple(
            replace(endpoint, share=plan.endpoint_shares.get(endpoint.name), delay_seconds=self._delay())
            for endpoint in self._endpoints
        )
        for entry in plan.assignments:
            job = self._jobs[entry.job_id]
            if job.movable or job.share != entry.share:
                self._jobs[job.id] = replace(job, node_id=entry.node_id, movable=False, share=entry.share)

    def go_on(self) -> None:
        """Two seconds pass: some jobs report, a few end and others come."""
        self.now += 2.0
        for job_id in self._random.sample(sorted(self._jobs), math.ceil(REPORTING * len(self._jobs))):
            self._jobs[job_id] = self._reported(self._jobs[job_id])
        for job_id in self._random.sample(sorted(self._jobs), math.ceil(len(self._nodes) / 100)):
            del self._jobs[job_id]
            job = replace(self._new_job(None), observations=(), cpu_seconds=0.0)
            self._jobs[job.id] = job

    def _delay(self) -> float:
        return self._random.uniform(0.02, 0.1)

    def _endpoint(self, index: int) -> EndpointView:
        return EndpointView(
            name=f"endpoint-{index:04}",
            tenant=f"tenant-{index % TENANTS}",
            node_id=self._nodes[index].id,
            objective_seconds=0.05,
            requests_per_second=50.0,
            delay_seconds=self._delay(),
            cpu_cores_used=0.8,
            quality=0.9,
        )

    def _past_run(self) -> PastRun:
        plateau, rate = self._random.uniform(0.7, 0.99), self._random.uniform(0.02, 0.1)
        return PastRun(tuple(CurvePoint(3.0 * step, self._value(plateau, rate, 2 * step)) for step in range(1, 31)))

    def _new_job(self, index: int | None) -> JobView:
        self._count += 1
        name = f"job-{self._count:06}"
        plateau, rate = self._random.uniform(0.7, 0.99), self._random.uniform(0.02, 0.1)
        begin = self.now - 2.0 * REPORTS - self._random.uniform(0, 2)
        seen = tuple(
            Observation(begin + 2.0 * step, step, self._value(plateau, rate, step), 1.5 * step)
            for step in range(1, REPORTS + 1)
        )
        targets = (plateau * self._random.uniform(0.7, 1.1), 0.995)
        return JobView(
            id=name,
            tenant=f"tenant-{self._count % TENANTS}",
            submitted_at=begin,
            direction=Direction.MAX,
            tiers=tuple(
                TierStatus(number, Tier(target), TierState.DELIVERED if seen[-1].value >= target else TierState.PENDING)
                for number, target in enumerate(targets, start=1)
            ),
            resources=Resources(cpu_cores=float(self._random.choice((1, 1, 1, 2, 4))), memory_bytes=GIB),
            node_id="" if index is None else self._nodes[index % len(self._nodes)].id,
            movable=index is None,
            share=None if index is None else Share(0.1, reason="before"),
            observations=seen,
            cpu_seconds=seen[-1].cpu_seconds,
            name=name,
            workload=f"workload-{self._count % WORKLOADS}",
            started_at=begin,
            max_epochs=1000,
        )

    def _reported(self, job: JobView) -> JobView:
        if not job.observations:
            return replace(job, observations=(Observation(self.now, 1, 0.1, 1.5),), cpu_seconds=1.5)
        last = job.observations[-1]
        value = min(last.value + self._random.uniform(-0.002, 0.004), 1.0)
        seen = Observation(self.now, last.epoch + 1, value, last.cpu_seconds + 1.5)
        return replace(job, observations=(*job.observations, seen), cpu_seconds=seen.cpu_seconds)

    def _value(self, plateau: float, rate: float, step: int) -> float:
        return plateau * (1 - 0.9 * math.exp(-rate * step)) + self._random.gauss(0, 0.003)


def decisions(policy: AnyPolicy, cluster: Cluster) -> Iterator[float]:
    """CPU seconds that each decision in a row takes."""
    state = policy.initial_state()
    while True:
        snapshot = cluster.snapshot()
        begin = time.thread_time()
        plan, state = policy.plan(snapshot, state)
        yield time.thread_time() - begin
        cluster.carry_out(plan)
        cluster.go_on()


def measure(name: str, jobs: int, nodes: int) -> Json:
    """A policy's figures at one size, in milliseconds of CPU time."""
    gc.unfreeze()
    cluster = Cluster(jobs, nodes)
    gc.collect()
    gc.freeze()
    took = decisions(create_policy(name), cluster)
    first = next(took)
    next(took)  # the first one that had anything to remember
    later = [next(took) for _ in range(DECISIONS)]
    return {
        "jobs": jobs,
        "nodes": nodes,
        "first_ms": round(first * 1e3, 2),
        "median_ms": round(statistics.median(later) * 1e3, 2),
        "longest_ms": round(max(later) * 1e3, 2),
    }


def bars_of(figures: Json) -> list[Bar]:
    """What a decision may take: in the median, and the longest of them."""
    return [
        Bar(
            f"{name}: {row['jobs']} jobs on {row['nodes']} nodes{what}",
            row[of],
            f"<= {GOALS_MS[row['jobs']]}",
            "ms",
        )
        for name, rows in figures["policies"].items()
        for row in rows
        if row["jobs"] in GOALS_MS
        for what, of in (("", "median_ms"), (", the longest", "longest_ms"))
    ]


def main(
    only: Annotated[list[str] | None, typer.Option(help="Measure these policies only, and keep nothing.")] = None,
    largest: Annotated[int, typer.Option(help="Most jobs to try; keeps nothing if that is fewer than all.")] = 10_000,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure every policy at every size."""
    rows: dict[str, list[Json]] = {}
    print(f"{'policy':14} {'jobs':>6} {'nodes':>6} {'first':>10} {'median':>10} {'longest':>10}  ms")
    for name in sorted(only or BUILT_IN):
        for jobs, nodes in SIZES:
            if jobs <= largest:
                row = measure(name, jobs, nodes)
                rows.setdefault(name, []).append(row)
                print(
                    f"{name:14} {jobs:6} {nodes:6} "
                    f"{row['first_ms']:10.2f} {row['median_ms']:10.2f} {row['longest_ms']:10.2f}"
                )
    if not only and largest >= SIZES[-1][0]:
        figures = {"reports_per_job": REPORTS, "part_with_new_report": REPORTING, "policies": rows}
        keep_result("decision-cost", command="python -m benchmarks.decision_cost", figures=figures, keep=keep)


if __name__ == "__main__":
    typer.run(main)
