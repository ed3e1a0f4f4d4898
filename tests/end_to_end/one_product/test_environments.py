"""Jobs that need packages which the node has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job
from testing.wheels import write_wheel
from tiercel import Script
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

SCRIPT = b"""import subprocess
import alpha, numpy, tiercel.trainer
print("has", alpha.VERSION, subprocess.run(["say-alpha"], capture_output=True, text=True).stdout, flush=True)
"""


async def test_a_job_runs_with_the_packages_that_it_asks_for(product: Product, packages: Path) -> None:
    module = "VERSION = '1.0'\ndef main():\n    print('by name')\n"
    write_wheel(packages, "alpha", files={"alpha.py": module}, scripts={"say-alpha": "alpha:main"})
    async with client_of(product, "environments") as client:
        program: dict[str, Any] = {"module": "", "script": Script("t.py", SCRIPT), "arguments": ()}
        for endpoint in ("first", "second"):
            job = await client.submit(digits_job(endpoint, requirements=("alpha>=1",), **program))
            await job.wait(JOB_SECONDS)
            output = b"".join([piece async for piece in job.logs()]).decode()
            assert "has 1.0 by name" in output
            assert ("builds it from the requirements" in output) == (endpoint == "first")

        job = await client.submit(digits_job("third", requirements=("nowhere",), **program))
        failed = await job.wait(JOB_SECONDS)
        assert failed.state is JobState.FAILED
        assert "Its environment cannot be built: " in failed.reason
        assert "nowhere" in failed.reason
