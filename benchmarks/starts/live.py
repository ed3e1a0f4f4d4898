"""``make bench-starts-live``: schedules with real training, with and without warm starts in turn, by the same policy.

Before each schedule the node trains two small jobs to their ends in both ways, since a node learns from its first run
what runs import, and gets ready with the second: what is compared is a node that has worked before.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.results import KEEP_HELP, Bar
from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.live_run import LiveSettings, run_schedule
from benchmarks.scheduling.matrix import deadline_seconds
from benchmarks.scheduling.outcome import RunOutcome
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import make_schedule
from benchmarks.sections import finish
from testing.product import Product
from tiercel import Client

Json = dict[str, Any]

FOLDER = Path("build/starts-live")
ARM = "utility"
SCHEDULES = ("ten", "mixed")
WAYS: Mapping[str, Mapping[str, str]] = {"cold": {"TIERCEL_AGENT_WARM_TEMPLATES": "0"}, "warm": {}}
GAIN = 0.25
FIRST_KINDS = ("gru-small", "mlp-small")
# For a template to have imported what the first job did.
SETTLE_SECONDS = 10.0
FIRST_JOB_SECONDS = 120.0


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each schedule runs in either way.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Run the schedules, tell, and write starts-live.json; exits with 1 where a bar does not hold."""
    figures = asyncio.run(measure(rounds))
    finish("starts-live", command="make bench-starts-live", figures=figures, keep=keep)


async def measure(rounds: int) -> Json:
    """What the result file has: of each run the seconds from each job's submission to its first tier's answers."""
    runs: list[Json] = []
    for repetition in range(rounds):
        for schedule in SCHEDULES:
            for way, environment in WAYS.items():
                outcome = await _run(schedule, repetition, environment)
                seconds = tiers_of(outcome)
                runs.append({"schedule": schedule, "repetition": repetition, "way": way, "seconds": seconds,
                             "makespan_seconds": outcome.makespan_seconds,
                             "cpu_seconds": round(sum(job.cpu_seconds for job in outcome.jobs), 2)})  # fmt: skip
                typer.echo(f"{schedule} {repetition} {way}: tier 1 after {statistics.mean(seconds):.2f} s on average")
    return {"policy": ARM, "runs": runs}


def tiers_of(outcome: RunOutcome) -> list[float]:
    """Seconds to the first tier's answers, job by job.

    Raises:
        RuntimeError: A job never got there.
    """
    found = [job.delivered_seconds[0] for job in outcome.jobs]
    seconds = [each for each in found if each is not None]
    if len(seconds) < len(found):
        raise RuntimeError(f"{len(found) - len(seconds)} jobs of {outcome.schedule} never reached their first tier")
    return seconds


def bars_of(figures: Json) -> list[Bar]:
    """By how much sooner the first tier comes where runs are started warm; means over jobs and rounds."""
    bars = []
    for schedule in SCHEDULES:
        warm, cold = (_mean(figures["runs"], schedule, way) for way in ("warm", "cold"))
        bars.append(Bar(f"time to tier 1, warm by cold, {schedule}", warm / cold, f"<= {1 - GAIN:g}"))
    return bars


def _mean(runs: Sequence[Json], schedule: str, way: str) -> float:
    means = [
        statistics.mean(map(float, run["seconds"])) for run in runs if (run["schedule"], run["way"]) == (schedule, way)
    ]
    return statistics.mean(means)


async def _run(name: str, repetition: int, environment: Mapping[str, str]) -> RunOutcome:
    schedule = make_schedule(name, repetition)
    recordings = Recordings.read()
    seconds = deadline_seconds(schedule, recordings, os.cpu_count() or 1)
    settings = LiveSettings(FOLDER, "process", seconds, recordings, environment, _train_first)
    return await run_schedule(ARMS[ARM], schedule, settings)


async def _train_first(product: Product) -> None:
    """The node's first jobs, one after the other."""
    async with Client.from_state_dir(product.state_dir, "default") as client:
        for kind in FIRST_KINDS:
            job = await client.submit(KINDS[kind].spec("first", 0, "process"))
            async with asyncio.timeout(FIRST_JOB_SECONDS):
                await job.wait()
            await client.delete_endpoint("first")
    await asyncio.sleep(SETTLE_SECONDS)


if __name__ == "__main__":
    typer.run(main)
