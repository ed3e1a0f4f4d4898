"""``make bench-starts``: runs are ordered in turn, warm and cold, as processes and in containers; when they step."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.bars import shown_goal, shown_value
from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import finish, table
from testing.docker import DockerEngine, docker_engine
from testing.until import until
from testing.warm_node import ContainerNode, WarmNode, WarmRun, container_node, warm_node
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.detect import detect
from tiercel.trainer_agent.runtimes.contract import Program

Json = dict[str, Any]

DOCUMENT = ROOT / "docs" / "warm-starts.md"
DEADLINE_SECONDS = 120.0
# The packages of a usual script, as its run would write them down.
IMPORTS = ("numpy", "torch", "torch.utils")
STOP_SECONDS = 30.0
KINDS = {
    "warm": "warm",
    "cold": "cold",
    "resumed": "resumed",
    "container_warm": "container, warm",
    "container_cold": "container, cold",
}

# A clock that all processes of a machine share tells when each thing happened.
SCRIPT = """
import gc, json, os, signal, sys, time
began = time.clock_gettime(time.CLOCK_MONOTONIC)
import numpy, torch
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.Adam(net.parameters())
if os.path.exists("checkpoint"):
    state = torch.load("checkpoint", weights_only=True)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
def stop(*_):
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
rows, classes = torch.randn(128, 64), torch.randint(10, (128,))
loss = torch.nn.functional.cross_entropy(net(rows), classes)
loss.backward()
optimizer.step()
print(json.dumps({"began": began, "stepped": time.clock_gettime(time.CLOCK_MONOTONIC),
                  "cpu_seconds": time.process_time(), "loss": loss.item().hex()}), flush=True)
while "--on" in sys.argv:
    time.sleep(0.01)  # a script that goes on until it is stopped
"""


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often warm and cold take turns.")] = 12,
    containers: Annotated[bool, typer.Option(help="Containers too, for which the tests' engine is used.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Order runs, tell, and write starts.json; exits with 1 where a bar does not hold."""
    figures = asyncio.run(measure(rounds))
    if containers:
        with docker_engine() as engine:
            figures |= asyncio.run(measure_containers(engine, rounds))
    finish("starts", command="make bench-starts", figures=figures, keep=keep, section=(DOCUMENT, section_of))


async def measure(rounds: int) -> Json:
    """What the result file has: each run with its times, in seconds from its order."""
    limits = detect(f"bench-starts-{os.getpid()}", float(os.cpu_count() or 1))
    try:
        with tempfile.TemporaryDirectory() as folder:
            return await _measure(Path(folder), limits, rounds)
    finally:
        limits.close()


async def _measure(folder: Path, limits: Limits, rounds: int) -> Json:
    warm: list[Json] = []
    cold: list[Json] = []
    resumed: list[Json] = []
    async with warm_node(folder, limits) as node:
        await node.warm_up(IMPORTS)
        await _start(node, warm=True)  # whoever is first finds caches empty
        for _ in range(rounds):
            warm.append(await _start(node, warm=True))
            cold.append(await _start(node, warm=False))
        resumed.extend([await _suspend(node) for _ in range(rounds)])
    return {"limits": limits.name, "imports": list(IMPORTS), "warm": warm, "cold": cold, "resumed": resumed}


async def measure_containers(engine: DockerEngine, rounds: int) -> Json:
    """The same of containers; each is ordered once one waits for the next run, so that none is made meanwhile."""
    found: Json = {"container_warm": [], "container_cold": []}
    with tempfile.TemporaryDirectory() as folder:
        async with container_node(Path(folder), engine, name="bench-starts") as node:
            await node.warm_up(IMPORTS)
            for _ in range(rounds):
                for kind, warm in (("container_warm", True), ("container_cold", False)):
                    await until(node.template, seconds=DEADLINE_SECONDS)
                    found[kind].append(await _start(node, warm=warm))
    return found


async def _start(node: WarmNode | ContainerNode, *, warm: bool) -> Json:
    ordered = time.clock_gettime(time.CLOCK_MONOTONIC)
    run = await node.start(SCRIPT, warm=warm)
    found = await _stepped(run, ordered, is_warm=warm)
    await run.wait()
    await run.close()
    return found


async def _suspend(node: WarmNode) -> Json:
    """Stop a run once it trains, and go on from its checkpoint."""
    launch = node.launch(SCRIPT, program=Program(script="train.py", arguments=("--on",)))
    run = await node.runtime.start(launch)
    await _stepped(run, 0.0, is_warm=True)
    asked = time.clock_gettime(time.CLOCK_MONOTONIC)
    await run.stop(STOP_SECONDS)
    await run.close()
    gone = time.clock_gettime(time.CLOCK_MONOTONIC)
    run = await node.runtime.start(launch)
    found = await _stepped(run, gone, is_warm=True)
    await run.stop(STOP_SECONDS)
    await run.close()
    return {"stop_seconds": gone - asked, **found}


async def _stepped(run: WarmRun, ordered: float, *, is_warm: bool) -> Json:
    """When a run began and made its first step, in seconds from its order."""
    if run.is_warm is not is_warm:
        raise RuntimeError(f"a run was to be {'warm' if is_warm else 'cold'}, and was not: {run.note or 'no template'}")
    text = b""
    async with asyncio.timeout(DEADLINE_SECONDS), aclosing(run.output()) as output:  # type: ignore[type-var]
        async for chunk in output:
            text += chunk.data
            if b"\n" in text:
                break
    said = json.loads(text)
    return {
        "began_seconds": said["began"] - ordered,
        "step_seconds": said["stepped"] - ordered,
        "cpu_seconds": said["cpu_seconds"],
        "loss": said["loss"],
    }


def section_of(figures: Json, bars: Sequence[Bar]) -> str:
    """What documents show of the result."""
    rows = [(name, *_quantiles(figures[kind])) for kind, name in KINDS.items() if kind in figures]
    runs = table(("run", "first line, median s", "first step, median s", "longest s", "CPU s, median"), rows)
    verdicts = [(bar.name, shown_value(bar), shown_goal(bar), "yes" if bar.holds else "**no**") for bar in bars]
    return f"{runs}\n\n{table(('bar', 'value', 'goal', 'holds'), verdicts)}"


def _quantiles(runs: Sequence[Json]) -> tuple[str, ...]:
    began, stepped, cpu = ([run[name] for run in runs] for name in ("began_seconds", "step_seconds", "cpu_seconds"))
    values = (statistics.median(began), statistics.median(stepped), max(stepped), statistics.median(cpu))
    return tuple(f"{value:.3f}" for value in values)


if __name__ == "__main__":
    typer.run(main)
