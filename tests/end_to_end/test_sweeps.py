"""A sweep by the real Optuna over real jobs: given up, left, gone on with, and its best parameters at the endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, tiercel
from tiercel import Client, JobInfo
from tiercel.broker.client.spec_file import load_spec
from tiercel.broker.client.sweeps.ranges import read_range
from tiercel.broker.client.sweeps.running import Sweep, SweepPlan
from tiercel.broker.client.sweeps.stopping import Halving
from tiercel.broker.client.sweeps.study import Study
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

LINE = Path(__file__).parents[2] / "examples" / "line"
RANGE = "learning-rate=loguniform:0.3:0.9"


async def broken_off(client: Client, folder: Path, *, leave: bool) -> JobInfo:
    """A sweep that is interrupted when it has submitted its first trial; returns that job."""
    spec, before = load_spec(LINE), {job.id for job in await client.list_jobs()}
    plan = SweepPlan("fit", 2, 1, Halving(), leave)
    with Study(folder / "fit.sweep.db", "fit", spec.direction, dict([read_range(RANGE)]), "tpe") as study:
        life = asyncio.create_task(Sweep(client, spec, plan, study, lambda _: None).run())
        async with asyncio.timeout(JOB_SECONDS):
            while not any(asked.job_id for asked in study.unfinished()):  # noqa: ASYNC110 - the file tells nobody
                await asyncio.sleep(0.02)
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        assert bool(study.unfinished()) is leave
    (job,) = [job for job in await client.list_jobs() if job.id not in before]
    return job


async def test_the_best_parameters_feed_the_endpoint(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with client_of(product) as client:
        given_up = await client.job((await broken_off(client, tmp_path, leave=False)).id).wait(JOB_SECONDS)
        left = await broken_off(client, tmp_path, leave=True)
        options = ("--study", "fit", "--param", RANGE, "--trials", "2", "--at-once", "1", "--json")
        told = await tiercel("sweep", str(LINE), *options, state_dir=product.state_dir, tenant="alice", environment={})
        assert told.exit_code == 0, told.errors
        ends = told.content["trials"]
        assert [(end["number"], end["state"]) for end in ends] == [(1, "completed"), (2, "completed")]
        assert ends[0]["job_id"] == left.id
        best = min(ends, key=lambda end: end["value"])
        assert told.content["best"]["parameters"] == best["parameters"]
        job = await client.job(told.content["job"]).wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, job.reason
        assert job.spec.labels["sweep"] == "fit"
        assert job.spec.command[-2:] == ("--learning-rate", str(best["parameters"]["learning-rate"]))
        assert {each.id for each in await client.list_jobs()} == {given_up.id, *(end["job_id"] for end in ends), job.id}
        (endpoint,) = await client.list_endpoints()
        assert endpoint.name == "line"
        (answer,) = (await client.infer("line", {"x": [[0.0], [1.0]]})).outputs.values()
        assert answer.shape == (2, 1)
