"""The course of a demo: the product up, jobs in, an application and a subscriber beside, until all is delivered."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.demo_jobs import JOBS, TENANTS, DemoJob
from benchmarks.demo_state import DemoState
from benchmarks.live_view import View
from benchmarks.subscriber import Subscriber
from benchmarks.until_end import is_late
from testing.application_process import ApplicationProcess
from testing.load_record import SWAP_WINDOW_SECONDS, LoadRecord
from testing.product import Product, ProductError, processes_of
from tiercel import Client
from tiercel.broker.client.state_dir import read_token

SHOW_SECONDS = 0.25
LINGER_SECONDS = SWAP_WINDOW_SECONDS + 0.5
"""The application goes on this long after the last job, so that the last swap is seen from both sides."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to run the demo."""

    output: Path  # folder for everything that it leaves
    runtime: str = "process"  # ``process`` or ``docker``
    policy: str = "utility"  # name of the scheduling policy
    rate: float = 60.0  # requests a second of the application, in total
    seconds_limit: float = 240.0  # the jobs have to be done after so many seconds
    jobs: tuple[DemoJob, ...] = JOBS  # what is trained


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo left."""

    state: DemoState  # the jobs and what was told meanwhile
    record: LoadRecord  # what the application saw
    timed_out: bool  # whether the jobs were not done in time
    left_over: tuple[str, ...]  # processes of the product that were still there after it had stopped; they are gone now


async def run_demo(options: DemoOptions, view: View) -> Outcome:
    """Run the demo.

    Raises:
        ProductError: The product did not start, or another one runs in the same folder.
        ApplicationError: The application failed.
        TiercelError: The broker refused something.
    """
    state_dir = _fresh_state_dir(options.output)
    state = DemoState()
    async with asyncio.TaskGroup() as group:
        showing = group.create_task(_show(view, state))
        state.phase = "starting Tiercel"
        tenants = [argument for tenant in TENANTS for argument in ("--tenant", tenant)]
        async with Product(
            state_dir, options.output / "up.log", ["--policy", options.policy, "--runtime", options.runtime, *tenants]
        ) as product:
            record, timed_out = await _work(options, product, state)
            state.phase = "stopping Tiercel"
            await product.stop()
            left_over = tuple(product.left_over())
        showing.cancel()
    return Outcome(state, record, timed_out, left_over)


def _fresh_state_dir(output: Path) -> Path:
    state_dir = output.resolve() / "state"
    if running := processes_of(state_dir):
        pids = ", ".join(str(process.pid) for process in running)
        message = f"Another demo runs in {output} (processes {pids}); let it end, or choose another --output"
        raise ProductError(message)
    shutil.rmtree(state_dir, ignore_errors=True)
    state_dir.mkdir(parents=True)
    (output / "up.log").unlink(missing_ok=True)
    return state_dir


async def _show(view: View, state: DemoState) -> None:
    while True:
        view.show(state)
        await asyncio.sleep(SHOW_SECONDS)


async def _work(options: DemoOptions, product: Product, state: DemoState) -> tuple[LoadRecord, bool]:
    """Everything between the product's start and its end; returns the application's record and whether time ran out."""
    addresses = product.addresses
    tokens = {tenant: read_token(product.state_dir, tenant) for tenant in TENANTS}
    state.subscriber = Subscriber(addresses["mqtt"], tokens, options.output / "mqtt-messages.jsonl")
    state.phase = "starting an application"
    endpoints = [(job.endpoint, job.images) for job in options.jobs]
    async with (
        ApplicationProcess(addresses["serving_http"], endpoints, options.rate, options.output) as application,
        AsyncExitStack() as stack,
        # Innermost: whatever ends this, nobody follows the application any more when it is stopped.
        asyncio.TaskGroup() as group,
    ):
        clients = {
            tenant: await stack.enter_async_context(Client.from_state_dir(product.state_dir, tenant))
            for tenant in TENANTS
        }
        tasks = [
            group.create_task(state.subscriber.run()),
            group.create_task(application.follow(state.add_news)),
        ]
        await _submit(options, clients, state)
        over = asyncio.Event()
        tasks += [group.create_task(_follow_jobs(client, state, over)) for client in clients.values()]
        timed_out = await is_late(over, options.seconds_limit)
        await asyncio.sleep(LINGER_SECONDS)
        await _refresh(clients, state)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        record = await application.stop()
    return record, timed_out


async def _submit(options: DemoOptions, clients: dict[str, Client], state: DemoState) -> None:
    state.phase = "training and serving"
    for job in options.jobs:
        handle = await clients[job.tenant].submit(job.spec(options.runtime))
        state.timeline.submitted(await handle.refresh())


async def _follow_jobs(client: Client, state: DemoState, over: asyncio.Event) -> None:
    async with aclosing(client.events()) as events:
        async for event in events:
            state.timeline.add(event)
            if state.timeline.is_over:
                over.set()


async def _refresh(clients: dict[str, Client], state: DemoState) -> None:
    """Ask for the final truth: events tell what changed, the broker what is."""
    for track in state.timeline:
        job = await clients[track.tenant].get_job(track.id)
        track.tiers, track.cpu_seconds = list(job.tiers), job.cpu_seconds
        track.reason, track.log_tail = job.reason, job.log_tail
