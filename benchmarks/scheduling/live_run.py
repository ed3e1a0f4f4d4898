"""One schedule under one arm, with the whole product: a fresh ``tiercel up``, real training, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.scheduling.arms import Arm, oracle_options
from benchmarks.scheduling.cpu_meter import CpuMeter, CpuReading
from benchmarks.scheduling.follower import Follower
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.outcome import JobOutcome, Predicted, RunOutcome
from benchmarks.scheduling.recordings import Recordings, remember
from benchmarks.scheduling.schedules import Schedule
from benchmarks.scheduling.second_node import SecondNode, processors, wait_nodes
from benchmarks.scheduling.served import served_of
from benchmarks.until_end import is_late
from testing.application_process import ApplicationProcess
from testing.load_record import LoadRecord
from testing.product import Product, ProductError, processes_of
from tiercel import Client
from tiercel.core.predictions import PredictionState

TENANT = "default"
_SETTLE_SECONDS = 10
_MOST_PREDICTIONS = 1000


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How to run schedules."""

    folder: Path  # for state and logs of the run; its ``state`` is removed before and after
    runtime: str  # ``process`` or ``docker``
    deadline_seconds: float  # the jobs have to be done after so many seconds
    recordings: Recordings  # what is known of earlier runs, for arms that know the past or the future
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables of the product
    first: Callable[[Product], Awaitable[None]] | None = None  # done with the product before the schedule begins


async def run_schedule(arm: Arm, schedule: Schedule, settings: LiveSettings) -> RunOutcome:
    """Run a schedule under an arm.

    Returns:
        What it left; key, setting and origin are for the caller to fill in.

    Raises:
        ProductError: The product did not start, or another run uses the same folder.
        ApplicationError: The application failed.
        TiercelError: The broker refused something.
        RecordingError: The arm needs recordings that are not there.
    """
    state_dir = fresh_state_dir(settings.folder)
    if arm.knows_past:
        await remember(settings.recordings, schedule, TENANT, state_dir / "broker.sqlite")
    options = ["--policy", arm.policy, "--runtime", settings.runtime]
    environment = {**environment_of(arm, schedule, settings), **settings.environment}
    if schedule.nodes > 1:
        environment["TIERCEL_AGENT_CPUS"] = processors()[0]
    try:
        async with Product(state_dir, settings.folder / "up.log", options, environment) as product:
            async with AsyncExitStack() as stack:
                if schedule.nodes > 1:
                    await stack.enter_async_context(SecondNode(product, environment))
                if settings.first is not None:
                    await settings.first(product)
                run = await _work(schedule, product, settings)
            await product.stop()
            left_over = len(product.left_over())
            errors = errors_in((state_dir / "broker.log").read_text(encoding="utf-8", errors="replace"))
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    return replace(_outcome(run, arm, schedule), left_over=left_over, errors=errors)


def environment_of(arm: Arm, schedule: Schedule, settings: LiveSettings) -> dict[str, str]:
    """The variables that make ``tiercel up`` the arm's.

    Raises:
        RecordingError: The arm knows the future, and there is no recording that tells it.
    """
    options = dict(arm.options)
    if arm.knows_future:
        works = {job.name: settings.recordings.works(job.kind, job.training_seed) for job in schedule.jobs}
        options |= oracle_options(works)
    return {
        "TIERCEL_POLICY_OPTIONS": json.dumps(options),
        "TIERCEL_AGENT_TIME_SLICE_SECONDS": str(arm.time_slice_seconds),
    }


def errors_in(log: str) -> int:
    """How many errors a broker's log tells, such as a plan that could not be carried out or a policy that failed."""
    return sum(" ERROR " in line for line in log.splitlines())


@dataclass(frozen=True, slots=True)
class _Run:
    """A schedule that has come to its end, before the product is stopped."""

    jobs: tuple[JobOutcome, ...]
    used: CpuReading
    record: LoadRecord | None
    began_at: float
    timed_out: bool
    predictions: tuple[Predicted, ...]


async def _work(schedule: Schedule, product: Product, settings: LiveSettings) -> _Run:
    """Everything between the product's start and its end."""
    follower = Follower(len(schedule.jobs))
    async with AsyncExitStack() as stack:
        application = await _start_application(schedule, product, settings, stack)
        client = await stack.enter_async_context(Client.from_state_dir(product.state_dir, TENANT))
        await wait_nodes(client, schedule.nodes, product.log)
        meter = CpuMeter(product)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(follower.follow(client))]
            if application is not None:
                # Somebody has to read what it tells, or it would stop telling.
                tasks.append(group.create_task(application.follow(lambda news: None)))
            before, began_at, began = meter.read(), time.time(), time.monotonic()
            submitting = group.create_task(_submit(schedule, client, follower, settings.runtime, began))
            timed_out = await is_late(follower.over, settings.deadline_seconds)
            used = meter.read().since(before)
            submitting.cancel()
            jobs = follower.outcomes(await follower.settle(client), began_at)
            for task in tasks:
                task.cancel()
        record = await application.stop() if application is not None else None
        predictions = await _settled(client, began_at)
    return _Run(jobs, used, record, began_at, timed_out, predictions)


async def _settled(client: Client, began_at: float) -> tuple[Predicted, ...]:
    """What the broker predicted, once it has compared all of it with what came; what is open then is left out."""
    for _ in range(_SETTLE_SECONDS):
        recorded = (await client.predictions(limit=_MOST_PREDICTIONS)).predictions
        if all(each.state is not PredictionState.OPEN for each in recorded):
            break
        await asyncio.sleep(1.0)  # the broker looks every two seconds
    return tuple(
        Predicted(round(each.made_at.timestamp() - began_at, 3), each.drawn, each.came_seconds)
        for each in reversed(recorded)
        if each.state is not PredictionState.OPEN
    )


async def _start_application(
    schedule: Schedule, product: Product, settings: LiveSettings, stack: AsyncExitStack
) -> ApplicationProcess | None:
    rate = schedule.requests_per_second
    if not rate:
        return None
    endpoints = [(job.name, KINDS[job.kind].images) for job in schedule.jobs]
    server = product.addresses["serving_http"]
    return await stack.enter_async_context(ApplicationProcess(server, endpoints, rate, settings.folder))


async def _submit(schedule: Schedule, client: Client, follower: Follower, runtime: str, began: float) -> None:
    for job in schedule.jobs:
        await asyncio.sleep(max(0.0, began + job.at_seconds - time.monotonic()))
        objective = schedule.objective_seconds
        spec = KINDS[job.kind].spec(job.name, job.training_seed, runtime, objective_seconds=objective)
        handle = await client.submit(spec)
        follower.add(job, await handle.refresh())


def _outcome(run: _Run, arm: Arm, schedule: Schedule) -> RunOutcome:
    ends = [job.submitted_seconds + job.finished_seconds for job in run.jobs if job.finished_seconds is not None]
    makespan = max(ends, default=0.0)
    served = None
    if run.record is not None:
        served = served_of(run.record, {job.name for job in schedule.jobs}, run.began_at, makespan)
    known = [*run.used.processes.values(), run.used.bench, *(job.cpu_seconds for job in run.jobs)]
    if run.record is not None:
        known.append(run.record.cpu_seconds)
    return RunOutcome(
        arm=arm.name,
        schedule=schedule.name,
        repetition=schedule.repetition,
        key="",
        setting="",
        jobs=run.jobs,
        makespan_seconds=round(makespan, 3),
        broker_cpu_seconds=round(run.used.processes.get("broker", 0.0), 3),
        agent_cpu_seconds=round(run.used.processes.get("agent", 0.0), 3),
        serving_cpu_seconds=round(run.used.processes.get("serving", 0.0), 3),
        foreign_cpu_seconds=round(max(0.0, run.used.machine - sum(known)), 2),
        steal_seconds=round(run.used.steal, 2),
        timed_out=run.timed_out,
        left_over=0,
        errors=0,
        served=served,
        predictions=run.predictions,
    )


def fresh_state_dir(folder: Path) -> Path:
    """An empty state directory in a folder.

    Raises:
        ProductError: Another run uses it.
    """
    state_dir = folder.resolve() / "state"
    if running := processes_of(state_dir):
        pids = ", ".join(str(process.pid) for process in running)
        raise ProductError(f"Another run uses {folder} (processes {pids}); let it end, or choose another folder")
    shutil.rmtree(state_dir, ignore_errors=True)
    state_dir.mkdir(parents=True)
    return state_dir
