from __future__ import annotations

import importlib.util

import pytest

from benchmarks.demo_jobs import JOBS, TENANTS, DemoJob
from testing.sample_images import load_samples
from tiercel.core.validation import validate_spec


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.endpoint)
def test_each_job_is_one_that_the_broker_takes(job: DemoJob) -> None:
    for runtime in ("process", "docker"):
        validate_spec(job.spec(runtime))
    assert importlib.util.find_spec(job.spec("process").module) is not None
    assert len(load_samples(job.images).images) > 100


def test_there_are_three_jobs_of_two_tenants_with_two_tiers_each_at_least() -> None:
    assert len(JOBS) >= 3
    assert len(TENANTS) == 2
    assert all(len(job.targets) >= 2 for job in JOBS)
    assert len({job.endpoint for job in JOBS}) == len(JOBS)
