"""Two jobs and a served model together by the whole product, under ``fair`` and ``utility``; each alone before."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_check.asking import Answers, add_served, ask
from benchmarks.gpu_check.frame import CheckError, Findings, Setting
from benchmarks.gpu_check.workloads import Asking, Workload, asking_on, training_on
from benchmarks.scheduling.live_run import TENANT, fresh_state_dir
from benchmarks.serving.bodies import Body
from benchmarks.serving.colocation import live_body
from testing.product import Product
from tiercel import Client, Direction, JobInfo, JobSpec, Resources, Script, Tier, TierState

POLICIES = ("fair", "utility")
QUICK_POLICIES = ("utility",)
TARGETS = (0.6, 0.9)
"""Tiers of the two jobs: of some 100 steps the first takes about half."""

STEPS = 100
ALONE_SECONDS = 10.0
"""The second tier takes a job about so long on an accelerator of its own, after it has started."""

UNMEASURED_STEPS_PER_SECOND = 100.0
"""A guess, for when the pacing check was left out."""

SERVED = "served"
SERVED_TARGET = 0.4
POLL_SECONDS = 0.5
GIB = 1 << 30

_OVER = {TierState.DELIVERED, TierState.FAILED, TierState.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class Trained:
    """What became of jobs that trained at the same time."""

    tier_seconds: tuple[float, ...]  # from submission to each tier, the mean of the jobs
    utilisation: float | None  # of the node's first accelerator while they trained, or None
    ended_at: float  # when the last tier of all was delivered, in seconds of ``time.monotonic``


@dataclass(frozen=True, slots=True)
class Bench:
    """The product, up, with a model that answers."""

    client: Client  # of its broker
    port: int  # of its inference server
    body: Body  # a request for the served model
    setting: Setting  # of the check
    asking: Asking  # the load

    async def load(self) -> Answers:
        """Load the served model once."""
        return await ask(self.port, f"/v2/models/{SERVED}/infer", self.body, self.asking, self.setting)

    async def train(self, names: Sequence[str]) -> Trained:
        """Train jobs at the same time, until all of their tiers are delivered.

        Raises:
            CheckError: One of them failed.
        """
        ids = []
        for seed, name in enumerate(names):
            workload = replace(_sized(self.setting), seed=seed)
            ids.append((await self.client.submit(_spec(name, workload, TARGETS, self.setting))).id)
        jobs, utilisations = await _until_over(self.client, ids)
        return Trained(
            tuple(statistics.fmean(_reached(job, number) for job in jobs) for number in range(len(TARGETS))),
            statistics.fmean(utilisations) if utilisations else None,
            time.monotonic(),
        )


async def run(setting: Setting, findings: Findings) -> None:
    """Serving alone and a job alone, then all together under each policy."""
    alone: Trained | None = None
    for policy in QUICK_POLICIES if setting.quick else POLICIES:
        setting.tell(f"product: starting it with the policy {policy}, and a model to serve")
        async with _bench(policy, setting) as bench:
            if alone is None:
                alone = await _alone(bench, findings)
            setting.tell(f"product: two jobs and the served model together under {policy}")
            async with asyncio.TaskGroup() as group:
                training = group.create_task(bench.train((f"{policy}-a", f"{policy}-b")))
                loading = group.create_task(bench.load())
            trained = training.result()
            beside = loading.result().served(until=trained.ended_at)
            add_served(findings, f"{policy}: served beside two jobs", beside, bench.asking, with_bar=True)
            _add_trained(findings, f"{policy}: two jobs", trained, alone)


async def _alone(bench: Bench, findings: Findings) -> Trained:
    bench.setting.tell("product: serving alone")
    add_served(findings, "product: served alone", (await bench.load()).served(), bench.asking, with_bar=False)
    bench.setting.tell("product: one job alone")
    trained = await bench.train(("alone",))
    _add_trained(findings, "product: a job alone", trained, None)
    return trained


def _add_trained(findings: Findings, name: str, trained: Trained, alone: Trained | None) -> None:
    first, last = trained.tier_seconds
    findings.figures[name] = {"tier_seconds": list(trained.tier_seconds), "utilisation": trained.utilisation}
    against = f"; alone {alone.tier_seconds[0]:.1f} and {alone.tier_seconds[-1]:.1f} s" if alone else ""
    findings.add(f"{name}: to the last tier", last, "s", note=f"first tier {first:.1f} s, start-up included{against}")
    if trained.utilisation is None:
        return
    goal, note = "", "of the device, while all jobs trained"
    if alone is not None and alone.utilisation:
        goal, note = f">= {95 * alone.utilisation:.1f}", f"alone {alone.utilisation:.0%}, of which 95 % are wanted"
    findings.add(f"{name}: utilisation", trained.utilisation * 100, "%", goal, note)


@asynccontextmanager
async def _bench(policy: str, setting: Setting) -> AsyncIterator[Bench]:
    state_dir = fresh_state_dir(setting.folder)
    options = ["--policy", policy, "--runtime", "process"]
    # Where nothing is installed but what it needs, this tree is what runs.
    environment = {"PYTHONPATH": os.pathsep.join(_python_path())}
    async with (
        Product(state_dir, setting.folder / "up.log", options, environment) as product,
        Client.from_state_dir(state_dir, TENANT) as client,
    ):
        server = product.addresses["serving_http"]
        asking = asking_on(setting.device, quick=setting.quick)
        asking = replace(asking, seconds=asking.seconds * 2)
        width = 32 if setting.device == "cuda" else 8
        spec = _spec(SERVED, Workload(width, batch_size=32), (SERVED_TARGET,), setting)
        job = await client.submit(replace(spec, endpoint_objective_seconds=asking.objective_seconds))
        await _until_over(client, [job.id])
        body = await live_body(f"http://{server}", SERVED)
        yield Bench(client, int(server.rpartition(":")[2]), body, setting, asking)


async def _until_over(client: Client, ids: Sequence[str]) -> tuple[list[JobInfo], list[float]]:
    """Wait for all tiers of jobs; returns these, and the device's utilisation at times when all of them trained."""
    utilisations: list[float] = []
    while True:
        jobs = [await client.get_job(each) for each in ids]
        over = [_is_over(job) for job in jobs]
        if all(over):
            return jobs, utilisations
        if all(job.epoch for job in jobs) and not any(over):
            utilisations += await _utilisation(client)
        await asyncio.sleep(POLL_SECONDS)


def _sized(setting: Setting) -> Workload:
    """As much work as an accelerator has for :data:`ALONE_SECONDS`, by how fast it was seen to be."""
    workload = training_on(setting.device, setting.memory_bytes)
    if setting.device == "cpu":
        return workload
    steps_per_second = setting.steps_per_second or UNMEASURED_STEPS_PER_SECOND
    return replace(workload, repeats=min(64, max(1, round(ALONE_SECONDS * steps_per_second / STEPS))))


def _spec(name: str, workload: Workload, targets: tuple[float, ...], setting: Setting) -> JobSpec:
    resources = Resources(cpu_cores=1.0, memory_bytes=GIB)
    if setting.device == "cuda":
        resources = Resources(1.0, 6 * GIB, 1, min(8 * GIB, setting.memory_bytes // 4))
    # The script finds what this process finds, whether or not it is installed.
    content = f"import sys\nsys.path[:0] = {json.dumps(_python_path())}\n"
    content += "from benchmarks.gpu_check.job import main\nmain(sys.argv[1:])\n"
    return JobSpec(
        name=name,
        endpoint=name,
        metric="accuracy",
        direction=Direction.MAX,
        tiers=tuple(Tier(target) for target in targets),
        script=Script("gpu_check_job.py", content.encode()),
        arguments=(*workload.arguments(), setting.device),
        resources=resources,
        runtime="process",
    )


def _python_path() -> list[str]:
    return list(dict.fromkeys([str(Path.cwd()), *(path for path in sys.path if path)]))


def _is_over(job: JobInfo) -> bool:
    """Whether all tiers are delivered.

    Raises:
        CheckError: They will not be.
    """
    delivered = all(tier.state is TierState.DELIVERED for tier in job.tiers)
    if (job.state.is_final and not delivered) or any(tier.state in _OVER - {TierState.DELIVERED} for tier in job.tiers):
        reasons = [job.reason, *(tier.reason for tier in job.tiers), job.log_tail[-200:]]
        raise CheckError(f"the job {job.spec.name} delivered no model: {' '.join(filter(None, reasons))}")
    return delivered


def _reached(job: JobInfo, number: int) -> float:
    seconds = job.tiers[number].reached_seconds
    if seconds is None:
        raise CheckError(f"the job {job.spec.name} does not say when it reached tier {number + 1}")
    return seconds


async def _utilisation(client: Client) -> list[float]:
    """Of the first accelerator of each node, as ``tiercel nodes --json`` has it."""
    firsts = [each for node in await client.list_nodes() for each in node.to_json().get("accelerators", [])[:1]]
    return [float(each["utilisation"]) for each in firsts if each.get("utilisation") is not None]
