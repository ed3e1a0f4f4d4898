"""A training held to shares of a device's time by the trainer library: what it really gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from benchmarks.gpu_check import figures
from benchmarks.gpu_check.frame import Findings, Setting
from benchmarks.gpu_check.processes import TrainerProcess
from benchmarks.gpu_check.utilisation import accelerators, watching
from benchmarks.gpu_check.workloads import training_on
from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.accelerators.contract import Accelerators
from tiercel.trainer_agent.limits.accelerator_paces import AcceleratorPaces

SHARES = (1.0, 0.5, 0.25)
CHANGE = (0.25, 0.5)
NEIGHBOURS = (0.7, 0.3)
ERROR_GOAL = "<= 3"
FOLLOW_GOAL = "<= 5"
PACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Times:
    """How long things are measured, in seconds."""

    settle: float = 2.0  # before each measurement
    settle_neighbours: float = 8.0  # the same for two at once, whom the agent gets to know first
    measure: float = 10.0  # each share
    follow: float = 8.0  # after a change


async def run(setting: Setting, findings: Findings) -> None:
    """Shares alone, a change of share, and two neighbours at once."""
    times = Times(0.1, 1.1, 0.5, 0.5) if setting.quick else Times()
    workload = training_on(setting.device, setting.memory_bytes)
    log = setting.folder / "pacing.log"
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(accelerators(setting))
        one = await stack.enter_async_context(TrainerProcess(setting.device, workload, log))
        other = await stack.enter_async_context(TrainerProcess(setting.device, replace(workload, seed=1), log))
        # Both get ready first: what starting costs is nobody's measurement.
        await one.ready()
        await other.ready()
        for share in SHARES:
            await _share(one, share, times, found, setting, findings)
        await _change(one, times, setting, findings)
        await _neighbours(one, other, times, setting, findings)
    findings.figures["last_loss"] = one.loss


async def _share(
    training: TrainerProcess, share: float, times: Times, found: Accelerators, setting: Setting, findings: Findings
) -> None:
    setting.tell(f"pacing: one training, share {share:g}")
    await training.allow(share)
    await asyncio.sleep(times.settle)
    async with watching(found, setting) as watched:
        got = await training.measure(times.measure)
    alone = setting.steps_per_second
    if share == 1:
        alone = setting.steps_per_second = got.steps_per_second
    work = got.steps_per_second / alone if alone else None
    note = f"got {got.share:.3f} of the device's time; {got.steps_per_second:.1f} steps/s"
    note += "" if work is None else f", {work:.0%} of alone"
    note += "" if watched.mean is None else f"; the driver says {watched.mean:.0%}"
    findings.figures[f"share {share:g}"] = {
        "share": got.share,
        "steps_per_second": got.steps_per_second,
        "part_of_alone": work,
        "utilisation": watched.mean,
    }
    if share == 1:
        # Nothing holds it back: what is missing to 1 is the script's own time between steps.
        findings.add("share 1: device time got", got.share * 100, "%", note=note)
    else:
        findings.add(f"share {share:g}: error", figures.points(got.share, share), "points", ERROR_GOAL, note)


async def _change(training: TrainerProcess, times: Times, setting: Setting, findings: Findings) -> None:
    before, after = CHANGE
    setting.tell(f"pacing: the share goes from {before:g} to {after:g} while it trains")
    await training.allow(before)
    await asyncio.sleep(times.settle)
    changed_at = await training.allow(after)
    await asyncio.sleep(times.follow)
    seconds = figures.followed_after(list(training.told), changed_at, after)
    findings.figures["change followed after"] = seconds
    note = f"to the end of the first second within {figures.TOLERANCE * 100:.0f} points"
    findings.add(f"share {before:g} to {after:g} live: followed after", seconds, "s", FOLLOW_GOAL, note)


async def _neighbours(
    one: TrainerProcess, other: TrainerProcess, times: Times, setting: Setting, findings: Findings
) -> None:
    setting.tell(f"pacing: two trainings at once, shares {NEIGHBOURS[0]:g} and {NEIGHBOURS[1]:g}")
    async with asyncio.TaskGroup() as group:
        pacing = group.create_task(_pace({0: one, 1: other}))
        await asyncio.sleep(times.settle_neighbours)
        both = await asyncio.gather(one.measure(times.measure), other.measure(times.measure))
        pacing.cancel()
    for got, share in zip(both, NEIGHBOURS, strict=True):
        # Events also count the neighbour's turns: what was really got is the work that was done.
        work = got.steps_per_second / setting.steps_per_second if setting.steps_per_second else 0.0
        findings.figures[f"neighbour {share:g}"] = {
            "share_with_turns_of_others": got.share,
            "steps_per_second": got.steps_per_second,
            "part_of_alone": work,
        }
        note = f"{got.steps_per_second:.1f} steps/s, {work:.1%} of alone; had work there {got.share:.0%} of the time"
        name = f"neighbours at once, share {share:g}: error"
        findings.add(name, figures.points(work, share), "points", ERROR_GOAL, note)


async def _pace(trainings: Mapping[int, TrainerProcess]) -> None:
    """Pace neighbours as the agent does: by what each says that it used, once a second."""
    paces = AcceleratorPaces()
    shares = {str(number): (AcceleratorShare("0", NEIGHBOURS[number], 0),) for number in trainings}
    allowed: dict[str, float] = {}
    while True:
        for name, limit in paces.paces(shares).items():
            if allowed.get(name) != limit:
                allowed[name] = limit
                await trainings[int(name)].allow(limit or 1.0)
        await asyncio.sleep(PACE_SECONDS)
        for number, training in trainings.items():
            paces.note(str(number), time.monotonic(), training.counted_seconds)
