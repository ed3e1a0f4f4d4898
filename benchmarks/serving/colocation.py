"""Training and serving on the same cores, by the whole product: delays of the one, CPU time of the other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import numpy as np
import psutil

from benchmarks.results import Bar
from benchmarks.scheduling.cpu_meter import CpuMeter
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.live_run import TENANT, fresh_state_dir
from benchmarks.serving.bodies import OCTETS, Body
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.overload import OpenLoop, generator_command, summary_in
from benchmarks.serving.samples import Json
from testing.cpu import cpu_seconds
from testing.product import Product, processes_of
from tiercel import Client, JobSpec

KIND = "cnn-wide"
TARGET = 0.3
"""Accuracy of the first and only tier: soon reached, so that there is something to ask; training goes on."""

EPOCHS = 5000
"""More than can be trained while this lasts: there is work for the CPU until the end."""

CONNECTIONS = 200
LIVE_SECONDS = 180.0
SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured."""

    rate: float = 500.0  # requests a second in an open loop
    objective: float = 0.02  # delay, in seconds, within which answers have to come
    seconds: float = 20.0  # for so long
    policy: str = "utility"  # what shares the node out


async def run_colocation(wanted: Sequence[Wanted], folder: Path, tell: Callable[[str], None]) -> list[Json]:
    """One training process a core, and an application that asks the endpoint of the first.

    Returns:
        A row for each.

    Raises:
        UnavailableError: No version got live, or the load generator failed.
        ProductError: The product did not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state_dir = fresh_state_dir(folder)
    options = ["--policy", wanted[0].policy, "--runtime", "process"]
    rows = []
    async with (
        Product(state_dir, folder / "up.log", options) as product,
        Client.from_state_dir(state_dir, TENANT) as client,
    ):
        cores = psutil.cpu_count() or 1
        for index in range(cores):
            await client.submit(_spec(f"training-{index}", index, wanted[0].objective))
        body = await live_body(f"http://{product.addresses['serving_http']}", "training-0")
        tell(f"{cores} training processes run, and the endpoint of the first is live")
        await asyncio.sleep(SETTLE_SECONDS)
        for each in wanted:
            rows.append(await _measured(each, product, folder, body))
            tell(json.dumps(rows[-1]))
    return rows


def bars_of(figures: Json) -> list[Bar]:
    """What both sides have to get."""
    rows: list[Json] = figures["colocation"]
    return [
        Bar("answers within the objective, least of all rates", min(row["in_objective"] for row in rows), ">= 0.95"),
        Bar("training's part of the CPU that serving leaves", min(row["training_part"] for row in rows), ">= 0.85"),
        Bar("requests without an answer", sum(row["failed"] for row in rows), "== 0"),
    ]


def _spec(name: str, seed: int, objective: float) -> JobSpec:
    kind = KINDS[KIND]
    long = replace(kind, max_epochs=EPOCHS, targets=(TARGET,))
    return long.spec(name, seed, "process", objective_seconds=objective)


async def live_body(server: str, endpoint: str) -> Body:
    """A binary request for the endpoint, as soon as it has a version.

    Raises:
        UnavailableError: It got none in time.
    """
    give_up = time.monotonic() + LIVE_SECONDS
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < give_up:
            async with session.get(f"{server}/v2/models/{endpoint}") as response:
                if response.status == 200:
                    return _body(await response.json())
            await asyncio.sleep(0.2)
    raise UnavailableError(f"endpoint {endpoint} got no version within {LIVE_SECONDS:.0f} s")


def _body(metadata: Json) -> Body:
    (tensor,) = metadata["inputs"]
    shape = [1 if size < 0 else size for size in tensor["shape"]]
    row = np.random.default_rng(7).random(shape, np.float32)
    described = {
        "name": tensor["name"],
        "shape": shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": row.nbytes},
    }
    head = json.dumps({"inputs": [described], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": OCTETS, "Inference-Header-Content-Length": str(len(head))}
    return Body(head + row.tobytes(), headers)


async def _measured(wanted: Wanted, product: Product, folder: Path, body: Body) -> Json:
    """Load for a while, and who used how much CPU time meanwhile."""
    port = int(product.addresses["serving_http"].rpartition(":")[2])
    content = folder / "open-loop.body"
    content.write_bytes(body.content)
    path = "/v2/models/training-0/infer"
    load = OpenLoop(path, body, wanted.rate, wanted.seconds, wanted.objective, CONNECTIONS)
    meter = CpuMeter(product)
    before, training, began = meter.read(), _training_cpu(product), time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *generator_command(port, load, content), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(wanted.seconds * 3 + 30):
        output, errors = await process.communicate()
    seconds = time.monotonic() - began
    used, trained = meter.read().since(before), _training_cpu(product) - training
    found = summary_in(process.returncode or 0, output.decode(), errors.decode())
    serving, generator = used.processes["serving"], found["generator_cpu_seconds"]
    known = serving + generator + trained + used.processes["agent"] + used.processes["broker"]
    other = max(0.0, used.machine - known)
    # What is not of the product, and what the machine's host withholds, nobody here could have had.
    left = (psutil.cpu_count() or 1) * seconds - serving - generator - other - used.steal
    return {
        "policy": wanted.policy,
        "rate": wanted.rate,
        "objective_ms": wanted.objective * 1e3,
        "in_objective": round(found["in_time"] / max(1, found["due"]), 4),
        "p50_ms": found["good_ms"].get("p50"),
        "p99_ms": found["good_ms"].get("p99"),
        "failed": found["due"] - found["answered"],
        "seconds": round(seconds, 1),
        "serving_cores": round(serving / seconds, 3),
        "application_cores": round(generator / seconds, 3),
        "training_cores": round(trained / seconds, 3),
        "control_cores": round((used.processes["agent"] + used.processes["broker"]) / seconds, 3),
        "other_cores": round(other / seconds, 3),
        "stolen_cores": round(used.steal / seconds, 3),
        "training_part": round(trained / left, 3),
    }


def _training_cpu(product: Product) -> float:
    """CPU seconds of the training processes so far."""
    total = 0.0
    for process in processes_of(product.state_dir):
        try:
            if any(KINDS[KIND].workload in word for word in process.cmdline()):
                total += cpu_seconds(process)
        except psutil.Error:
            continue
    return total
