"""The inference server under a constant load: alone, beside a training that nothing holds back, beside paced ones."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_check.asking import add_served, ask
from benchmarks.gpu_check.figures import Got, Served
from benchmarks.gpu_check.frame import Findings, Row, Setting
from benchmarks.gpu_check.processes import TrainerProcess
from benchmarks.gpu_check.utilisation import accelerators, watching
from benchmarks.gpu_check.workloads import Asking, asking_on, training_on
from benchmarks.serving.bodies import Body, Form, body_of
from benchmarks.serving.models import Model, exported
from benchmarks.serving.peers.contract import V2_PATH
from benchmarks.serving.peers.contract import Setting as ServerSetting
from benchmarks.serving.peers.ours import PEER
from benchmarks.serving.processes import ServerProcesses, running
from tiercel.trainer_agent.accelerators.contract import Accelerators

PACED = (0.5, 0.3)
"""Shares of two trainings beside the server: what it needs is left to it."""

LEFT_GOAL = ">= 95"
"""Percent of what serving leaves that training is to get."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the steps of this check share."""

    server: ServerProcesses  # runs, and is ready
    path: str  # of the model
    body: Body  # a request
    asking: Asking  # the load
    setting: Setting  # of the check
    found: Accelerators  # the devices

    async def load(self) -> tuple[Served, float]:
        """Load the server once; also the fraction of the device that was in use meanwhile, or of the CPU's cores."""
        began, used = time.monotonic(), await asyncio.to_thread(self.server.cpu_seconds)
        async with watching(self.found, self.setting) as watched:
            answers = await ask(self.server.launch.http_port, self.path, self.body, self.asking, self.setting)
        got = answers.served()
        if watched.mean is not None:
            return got, watched.mean
        used = await asyncio.to_thread(self.server.cpu_seconds) - used
        return got, used / (time.monotonic() - began) / (os.cpu_count() or 1)


async def run(setting: Setting, findings: Findings) -> None:
    """Delays of answers, and what training gets beside them."""
    on_device = setting.device == "cuda" and "CUDAExecutionProvider" in setting.facts["providers"]
    if setting.device == "cuda" and not on_device:
        note = "needs onnxruntime with CUDA (pip install onnxruntime-gpu); the rows below are of serving on the CPU"
        findings.rows.append(Row("serving on the device", note=note))
    setting.tell("serving: exporting a model")
    name = "resnet64" if on_device else "lenet"
    model = (await asyncio.to_thread(exported, setting.folder / "models", (name,)))[name]
    asking = asking_on("cuda" if on_device else "cpu", quick=setting.quick)
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(accelerators(setting))
        server = await stack.enter_async_context(_server(model, setting.folder))
        body, path = body_of(model, Form.BINARY), V2_PATH.format(model=model.name)
        provider = await asyncio.to_thread(_provider, server.launch.http_port)
        findings.figures |= {"model": model.kind.about, "provider": provider}
        if on_device and provider != "cuda":
            note = f"the server runs the model by {provider}; see {server.log}"
            findings.rows.append(Row("serving on the device", note=note, failed=True))
        where = "on the device" if provider == "cuda" else "on the CPU"
        bench = Bench(server, path, body, asking, setting, found)
        await ask(server.launch.http_port, path, body, replace(asking, seconds=1.0), setting)
        await _measure(bench, where, findings)


async def _measure(bench: Bench, where: str, findings: Findings) -> None:
    setting = bench.setting
    workload = training_on(setting.device, setting.memory_bytes)
    log = setting.folder / "serving-training.log"
    async with (
        TrainerProcess(setting.device, workload, log) as one,
        TrainerProcess(setting.device, replace(workload, seed=1), log) as other,
    ):
        await one.ready()
        await other.ready()
        setting.tell(f"serving: alone, {bench.asking.rate:g} requests/s {where}")
        alone, used = await bench.load()
        add_served(findings, f"served {where} alone", alone, bench.asking, with_bar=False, note=f"; uses {used:.0%}")
        await one.allow(1.0)
        await asyncio.sleep(1.0)
        training = await one.measure(bench.asking.seconds / 2)
        setting.tell("serving: beside a training that nothing holds back")
        beside, got, _ = await _beside(bench, [one])
        add_served(findings, f"served {where} beside 1 unpaced", beside, bench.asking, with_bar=False)
        _add_left(findings, training, got, used)
        setting.tell(f"serving: beside trainings with shares {PACED[0]:g} and {PACED[1]:g}")
        for each, share in zip((one, other), PACED, strict=True):
            await each.allow(share)
        await asyncio.sleep(1.0)
        beside, _, utilisation = await _beside(bench, [one, other])
        note = f"; device {utilisation:.0%} in use" if bench.found.listed else ""
        add_served(findings, f"served {where} beside 2 paced", beside, bench.asking, with_bar=True, note=note)


async def _beside(bench: Bench, trainings: Sequence[TrainerProcess]) -> tuple[Served, Got, float]:
    """What the load got, what the first of the trainings got meanwhile, and the device's utilisation."""
    began = time.monotonic()
    served, utilisation = await bench.load()
    return served, trainings[0].got(began, time.monotonic()), utilisation


def _add_left(findings: Findings, alone: Got, beside: Got, used: float) -> None:
    part = beside.steps_per_second / alone.steps_per_second
    findings.figures["training beside serving"] = {
        "alone": alone.steps_per_second,
        "beside": beside.steps_per_second,
        "used_by_serving": used,
    }
    rates = f"{alone.steps_per_second:.1f} steps/s alone, {beside.steps_per_second:.1f} beside"
    note = f"{rates}; serving alone uses {used:.0%}"
    findings.add("training beside serving, of what that leaves", part / max(0.01, 1 - used) * 100, "%", LEFT_GOAL, note)


def _provider(port: int) -> str:
    """What runs the model, as the server's metrics have it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r'^tiercel_model_provider\{[^}]*provider="(\w+)"[^}]*\} 1', text, re.MULTILINE)
    return found[1] if found else "unknown"


@asynccontextmanager
async def _server(model: Model, folder: Path) -> AsyncIterator[ServerProcesses]:
    own = folder / "server"
    own.mkdir()
    context = running(PEER.start(ServerSetting(own.absolute(), [model], Path(sys.executable))), folder / "serving.log")
    starting = asyncio.create_task(asyncio.to_thread(context.__enter__))
    try:
        # Whoever gives up meanwhile has to wait all the same: what is half started must be ended.
        yield await asyncio.shield(starting)
    finally:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(context.__exit__, None, None, None)
