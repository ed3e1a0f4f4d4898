"""A process that wants more memory of a device than it was granted, and its neighbour."""

from __future__ import annotations

import asyncio
import time

from benchmarks.gpu_check.frame import Findings, Row, Setting
from benchmarks.gpu_check.processes import TrainerProcess, output_of
from benchmarks.gpu_check.workloads import training_on

PART = 8
"""The limit is this part of the device's memory: room for the neighbour, and filled in no time."""

CPU_LIMIT_BYTES = 4 << 30
"""Of a device that is pretended."""

TAKER_SECONDS = 90.0


async def run(setting: Setting, findings: Findings) -> None:
    """The limit holds, the error says what to do, and the neighbour trains on."""
    limit = setting.memory_bytes // PART or CPU_LIMIT_BYTES
    measure = 0.5 if setting.quick else 5.0
    workload, log = training_on(setting.device, setting.memory_bytes), setting.folder / "memory.log"
    async with TrainerProcess(setting.device, workload, log) as training:
        await training.ready()
        # Where no figure matters it need not keep a core busy while the other process starts.
        await training.allow(0.25 if setting.quick else 1.0)
        await asyncio.sleep(measure / 2)
        before = await training.measure(measure)
        setting.tell(f"memory: a neighbour that may hold {limit / 2**20:,.0f} MiB asks for twice as much")
        began = time.monotonic()
        told = await output_of("memory_taker", setting.device, str(limit), seconds=TAKER_SECONDS, log=log)
        during = training.got(began, time.monotonic())
        after = await training.measure(measure)
    findings.figures |= told | {
        "steps_per_second": {
            "before": before.steps_per_second,
            "during": during.steps_per_second,
            "after": after.steps_per_second,
        }
    }
    stand_in = "" if setting.device == "cuda" else "a stand-in for the device's memory"
    held = told["held_bytes"] / told["limit_bytes"] * 100
    findings.add("memory held of its limit, asked for twice that", held, "%", "<= 100", stand_in)
    if told["driver_bytes"] is not None:
        whole = told["driver_bytes"] / told["limit_bytes"] * 100
        note = f"{told['driver_bytes'] - told['held_bytes']:,} bytes are not PyTorch's: the CUDA context"
        findings.add("the same by the driver's count", whole, "%", note=note)
    findings.add("the error says what to do", float(bool(told["sentence"])), "", "== 1", told["sentence"] or "no error")
    part = after.steps_per_second / before.steps_per_second * 100
    note = f"{before.steps_per_second:.1f} steps/s before, {during.steps_per_second:.1f} meanwhile"
    findings.add("the neighbour's steps/s after it, by those before", part, "%", ">= 90", note)
    if not told["error"]:
        findings.rows.append(Row("out-of-memory error", note="there was none up to twice the limit", failed=True))
