"""What-ifs against what then came: ``make bench-what-if``; ten minutes.

Simulated: twelve jobs run on two nodes, with earlier runs of their programs known. After a sixth and a third of the
time that all of it takes, the scheduler's snapshot is asked when tiers will be reached as things are. The runs that
follow lose CPU time to each other, and differ from earlier ones as live runs do; a what-if knows neither. With "later"
and "cluster" jobs come one after the other, and a what-if does not know of those to come.

What a new broker begins with (``calibration.py``) was chosen on the made-up programs (``there``, ``later``) with other
seeds; on recorded training (``curves``, ``runs``, ``cluster``) it is only shown.

Where the error comes from is told by asking once more, of jobs whose true work is known ("work"), and by those of these
predictions before whose tiers nobody else came ("alone"): what is left is what the shares will be. Of live brokers
``benchmarks.scheduling`` tells it.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from benchmarks.bars import keep_result
from benchmarks.prediction_error import LEAST_SECONDS, Settled, figures_of
from benchmarks.principle.work import kinds as kinds_of_work
from benchmarks.results import KEEP_HELP, ROOT, Bar, Json
from benchmarks.sections import bars_table, table, write_section
from benchmarks.simulated_workloads import past_runs
from tiercel.broker.scheduling.interface import CurvePoint, PastRun, Plan, Snapshot
from tiercel.broker.scheduling.registry import AnyPolicy, create_policy
from tiercel.broker.simulation import DrawnJobs, MachineSettings, Result, Scenario, equal_nodes, simulate
from tiercel.broker.simulation.arrivals import Uniform
from tiercel.broker.simulation.cluster import SLICED
from tiercel.broker.simulation.presets import measured_kinds
from tiercel.broker.what_if.answer import answer
from tiercel.broker.what_if.asking import Asking
from tiercel.broker.what_if.present import Present, Question, bounded
from tiercel.core.what_if import Changes, Span

DOCUMENT = ROOT / "docs" / "what-if.md"
POLICIES = ("fair", "fifo", "utility")
JOBS, NODES = 12, 2
REAL = {"curves": "real curves", "runs": "real runs", "cluster": "cluster arrivals"}
_WORDS = {
    "there": "made-up programs, all there",
    "later": "made-up programs, arriving over 20 s",
    "curves": "recorded curves",
    "runs": "recorded runs",
    "cluster": "a cluster's arrivals",
}
_FIRST_SEED = 100
_MANY_JOBS, _MANY_NODES = 50, 4
_TIMED = 5


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
            shown = (getattr(snapshot, name) for name in Snapshot.__dataclass_fields__)
            self.seen.append(Snapshot(*shown))
        return self._policy.plan(snapshot, state)


def made_up(arrive_within: float, jobs: int = JOBS, nodes: int = NODES) -> Scenario:
    """The live trial's programs, arriving within so many seconds."""
    kinds = measured_kinds()
    return Scenario(
        nodes=equal_nodes(nodes),
        jobs=DrawnJobs(kinds, jobs, Uniform(arrive_within)),
        machines=MachineSettings(colocation=SLICED),
        history={kind.name: past_runs(kind) for kind in kinds},
    )


def recorded(name: str, seed: int) -> Scenario:
    """Programs that learn as recorded training did."""
    kind = next(each for each in kinds_of_work(seed) if each.name == REAL[name])
    smaller = replace(kind, jobs=JOBS, nodes=NODES).scenario(seed, history=True)
    return replace(smaller, machines=MachineSettings(colocation=SLICED))


def settled(scenario: Scenario, policy: str, seed: int) -> Iterator[Settled]:
    """All predictions of one run."""
    makespan = simulate(scenario, policy, seed).makespan
    watching = Watching(create_policy(policy), (makespan / 6, makespan / 3))
    came = simulate(scenario, watching, seed)
    for seen in watching.seen:
        told, drawn = _drawn(foretold(seen, came), policy), _drawn(seen, policy)
        for (job_id, tier), span in drawn.items():
            seconds = _seconds(came, job_id, tier, seen.now)
            if seconds is not None and seconds > LEAST_SECONDS:
                alone = not any(seen.now < each.arrived_at < seen.now + seconds for each in came.jobs)
                yield Settled(span, seconds, told.get((job_id, tier)), alone)


def _drawn(seen: Snapshot, policy: str) -> dict[tuple[str, int], Span]:
    found = answer(Question(bounded(Present(seen, policy, {}, 1.0)), Changes()))
    return {(job.id, tier.tier): tier.drawn for job in found.jobs for tier in job.tiers if tier.drawn is not None}


def foretold(seen: Snapshot, came: Result) -> Snapshot:
    """The same, where the only earlier run of each job is the job itself."""
    outcomes = {job.id: job for job in came.jobs}
    history = {}
    for job in seen.jobs:
        points = [CurvePoint(each.cpu_seconds, each.value) for each in job.observations]
        points += [
            CurvePoint(tier.true_work, tier.target) for tier in outcomes[job.id].tiers if tier.true_work is not None
        ]
        points.sort(key=lambda point: point.cpu_seconds)
        if points:  # it goes on to the end of its budget
            points.append(CurvePoint(max(outcomes[job.id].cpu_seconds, points[-1].cpu_seconds), points[-1].value))
        history[job.id] = (PastRun(tuple(points)),)
    jobs = tuple(replace(job, workload=job.id, similar=()) for job in seen.jobs)
    return replace(seen, jobs=jobs, history=history, similar={})


def _seconds(came: Result, job_id: str, tier: int, now: float) -> float | None:
    job = next(each for each in came.jobs if each.id == job_id)
    seconds = job.time_to_tier(tier)
    return None if seconds is None else job.arrived_at + seconds - now


def simulated(seeds: Iterable[int]) -> list[Json]:
    """All sections and policies."""
    sections: Mapping[str, Callable[[int], Scenario]] = {
        "there": lambda _: made_up(0.01),
        "later": lambda _: made_up(20.0),
        **{name: lambda seed, name=name: recorded(name, seed) for name in REAL},  # type: ignore[misc]
    }
    rows = []
    for name, scenario in sections.items():
        for policy in POLICIES:
            runs = [list(settled(scenario(seed), policy, seed)) for seed in seeds]
            rows.append({"jobs": name, "policy": policy, **figures_of(runs)})
            print(_line(rows[-1]), flush=True)
    return rows


def _line(row: Json) -> str:
    told = {way: row[way] for way in ("drawn", "new", "learnt") if row[way]["median_error"] is not None}
    ways = (f"{way}: {each['median_error']:6.1%} {each['in_band']:4.0%}" for way, each in told.items())
    return f"{row['jobs']:8} {row['policy']:8} {row['drawn']['predictions']:5}  {'   '.join(ways)}"


async def _timed() -> list[float]:
    """Seconds from question to answer with another policy, by a child process, as the broker asks it."""
    watching = Watching(create_policy("utility"), (6.0,))
    simulate(made_up(0.01, _MANY_JOBS, _MANY_NODES), watching, _FIRST_SEED)
    present = bounded(Present(watching.seen[0], "utility", {}, 1.0))
    asking, took = Asking(), []
    for _ in range(_TIMED):
        began = asyncio.get_running_loop().time()
        await asking.ask(Question(present, Changes(policy="fair")), "operator")
        took.append(round(asyncio.get_running_loop().time() - began, 3))
    return took


def bars_of(figures: Json) -> list[Bar]:
    """What the figures have to be."""
    rows = [row for row in figures["simulated"] if row["jobs"] in REAL]
    return [
        Bar(f"what-if of {_MANY_JOBS} jobs, median", statistics.median(figures["seconds_of_50_jobs"]), "<= 2.0", "s"),
        *(
            Bar(
                f"{row['jobs']}, {row['policy']}: in band once it has recorded runs",
                row["learnt"]["in_band"],
                ">= 0.75",
            )
            for row in rows
        ),
    ]


def section_of(figures: Json, bars: Iterable[Bar]) -> str:
    """What the documentation says of it."""
    head = (
        *("jobs", "policy", "predictions", "median error", "bias", "work known", "and nobody later"),
        *("in band, as drawn", "new broker", "with recorded runs"),
    )
    rows = [
        (
            _WORDS[row["jobs"]],
            f"`{row['policy']}`",
            str(row["drawn"]["predictions"]),
            *(_percent(row["learnt"].get(name)) for name in ("median_error", "bias")),
            *(_percent(row[way]["median_error"]) for way in ("work", "alone")),
            *(_percent(row[way]["in_band"]) for way in ("drawn", "new", "learnt")),
        )
        for row in figures["simulated"]
    ]
    return f"{table(head, rows)}\n\n{bars_table('bar', bars)}"


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}".replace("%", " %")


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each policy.")] = 5,
    *,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Compare, print, and write ``what-if.json``."""
    figures: Json = {"seconds_of_50_jobs": asyncio.run(_timed())}
    print(f"{_MANY_JOBS} jobs: {figures['seconds_of_50_jobs']} s")
    figures["simulated"] = simulated(range(_FIRST_SEED, _FIRST_SEED + seeds))
    command = f"make bench-what-if BENCH_FLAGS='--seeds {seeds} --keep'"
    result = keep_result("what-if", command=command, figures=figures, keep=keep)
    if keep:
        write_section(DOCUMENT, "what-if", section_of(figures, result.bars))


if __name__ == "__main__":
    typer.run(main)
