"""A sweep by the real Optuna over real jobs: given up, left, gone on with, and its best parameters at the endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

from testing.product import Product, tiercel_command
from testing.product_use import JOB_SECONDS, client_of, tiercel
from testing.warm_python import without_tiercels
from tiercel import Client, JobInfo
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

LINE = Path(__file__).parents[3] / "examples" / "line"
RANGE = "learning-rate=loguniform:0.3:0.9"


OPTIONS = ("--study", "fit", "--param", RANGE, "--trials", "2", "--at-once", "1", "--json")


async def interrupted(product: Product, client: Client, folder: Path, *options: str) -> JobInfo:
    """A sweep whose process gets SIGINT when it has submitted a trial; returns that job."""
    before = {job.id for job in await client.list_jobs()}
    command = tiercel_command("sweep", str(LINE), *OPTIONS, *options, "--state-dir", str(product.state_dir))
    process = await asyncio.create_subprocess_exec(
        *command, "--tenant", "sweeps", cwd=folder, env=without_tiercels(), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(JOB_SECONDS):
            while not (found := [job for job in await client.list_jobs() if job.id not in before]):
                assert process.returncode is None, "it ended by itself"
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, told = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert (process.returncode, told) == (130, b"")
    return found[0]


async def test_the_best_parameters_feed_the_endpoint(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with client_of(product, "sweeps") as client:
        given_up = await client.job((await interrupted(product, client, tmp_path)).id).wait(JOB_SECONDS)
        left = await interrupted(product, client, tmp_path, "--leave")
        told = await tiercel("sweep", str(LINE), *OPTIONS, state_dir=product.state_dir, tenant="sweeps", environment={})
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
