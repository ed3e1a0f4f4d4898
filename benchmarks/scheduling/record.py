"""Makes recordings: each kind once with each seed, no more at a time than there are cores."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.scheduling.arms import LONG_SLICE_SECONDS
from benchmarks.scheduling.follower import Follower
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.live_run import TENANT, fresh_state_dir
from benchmarks.scheduling.outcome import JobOutcome
from benchmarks.scheduling.recordings import Recording, RecordingError
from benchmarks.scheduling.schedules import TRAINING_SEEDS, ScheduledJob
from testing.product import Product
from tiercel import Client

JOB_SECONDS = 120.0
"""A run alone has to be done after so many seconds."""

CPU_TICK = 0.001
"""The least step between the CPU seconds of two reports: they come out of a counter that may stand still."""


def runs_to_record(kinds: Sequence[str] = tuple(KINDS)) -> list[ScheduledJob]:
    """One run for each kind and training seed."""
    return [ScheduledJob(f"{kind}-{seed}", kind, seed, 0.0) for seed in range(TRAINING_SEEDS) for kind in kinds]


async def record(
    runs: Sequence[ScheduledJob], folder: Path, at_a_time: int, tell: Callable[[Recording], None]
) -> list[Recording]:
    """Run everything under ``fair`` with long slices, a few at a time, and make recordings.

    Raises:
        ProductError: The product did not start.
        RecordingError: A run did not get to its end.
    """
    state_dir = fresh_state_dir(folder)
    environment = {"TIERCEL_AGENT_TIME_SLICE_SECONDS": str(LONG_SLICE_SECONDS)}
    options = ["--policy", "fair", "--runtime", "process"]
    try:
        async with (
            Product(state_dir, folder / "up.log", options, environment) as product,
            Client.from_state_dir(product.state_dir, TENANT) as client,
        ):
            return await _record_all(client, runs, at_a_time, tell)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)


async def _record_all(
    client: Client, runs: Sequence[ScheduledJob], at_a_time: int, tell: Callable[[Recording], None]
) -> list[Recording]:
    follower = Follower(len(runs))
    made: list[Recording] = []
    left = iter(runs)

    async def work() -> None:
        # All of them take their next run from the same place.
        for run in left:
            made.append(await _record_one(client, follower, run))
            tell(made[-1])

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follower.follow(client))
        workers = [group.create_task(work()) for _ in range(at_a_time)]
        await asyncio.wait(workers)
        following.cancel()
    return made


async def _record_one(client: Client, follower: Follower, run: ScheduledJob) -> Recording:
    handle = await client.submit(KINDS[run.kind].spec(run.name, run.training_seed, "process"))
    follower.add(run, await handle.refresh())
    job = await handle.wait(JOB_SECONDS)
    # Events come a moment after the call that waits for the end of the job.
    await follower.wait_seen(handle.id)
    outcome = follower.outcome(job, job.submitted_at.timestamp())
    return recording_of(outcome, job.started_seconds or 0.0)


def recording_of(outcome: JobOutcome, started_seconds: float) -> Recording:
    """A recording of a run.

    Raises:
        RecordingError: It did not get to its end, or never reported.
    """
    if outcome.state not in {"completed", "missed"} or outcome.finished_seconds is None or len(outcome.points) < 2:
        raise RecordingError(f"{outcome.name} ended as {outcome.state} ({outcome.reason}); there is nothing to record")
    curve = tuple(_rising((point.cpu_seconds, point.value) for point in outcome.points))
    steps = [after[0] - before[0] for before, after in itertools.pairwise(curve)]
    return Recording(
        kind=outcome.kind,
        training_seed=outcome.training_seed,
        # Up to the first report it started and did one report's worth of work.
        startup_cpu_seconds=round(max(0.0, curve[0][0] - statistics.median(steps)), 3),
        cpu_seconds=outcome.cpu_seconds,
        seconds=round(outcome.finished_seconds - started_seconds, 3),
        targets=outcome.targets,
        curve=curve,
    )


def _rising(points: Iterator[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    last = 0.0
    for cpu, value in points:
        last = round(max(cpu, last + CPU_TICK), 3)
        yield last, value
