"""A folder becomes a job: its own modules and data, a private copy for each run, whatever becomes of the folder."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import tiercel as sdk
from testing.product import Product
from testing.product_use import JOB_SECONDS, SCRIPTS, client_of, tiercel
from tiercel import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

TRAIN = """
import json, pathlib, sys, time
from package.answer import ANSWER

config = json.loads(pathlib.Path("config.json").read_text())
note = pathlib.Path("note.txt")
rows = pathlib.Path("data/rows.bin").stat().st_size
linked = pathlib.Path("shortcut").read_text()
print("started with", ANSWER, note.read_text().strip(), rows, sys.argv[1:], linked, flush=True)
note.write_text("changed by a run")
first = pathlib.Path(config["first"])
while not pathlib.Path(config["go"]).exists():
    time.sleep(0.05)
if not first.exists():
    first.touch()
    sys.exit(3)
sys.argv[1:] = []
import package.numpy_linear
"""
SPEC = """
endpoint: project
metric: accuracy
tiers: [0.5]
command: python train.py --lr 0.1
arguments: [more]
retries: 1
"""


async def test_a_folder_is_trained_shipped_and_started_again_as_it_was_submitted(
    product: Product, tmp_path: Path
) -> None:
    folder, first, go = tmp_path / "project", tmp_path / "first", tmp_path / "go"
    files = {
        "tiercel.yaml": SPEC,
        "train.py": TRAIN,
        "package/__init__.py": "",
        "package/answer.py": "ANSWER = 42",
        "package/numpy_linear.py": (SCRIPTS / "numpy_linear.py").read_text(),
        "config.json": json.dumps({"first": str(first), "go": str(go)}),
        "note.txt": "as submitted",
        "data/rows.bin": "x" * 50_000,
        ".gitignore": "*.log\n",
        "debug.log": "not for others",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "shortcut").symlink_to("package/answer.py")
    submitted = await tiercel("submit", str(folder), state_dir=product.state_dir, tenant="projects")
    assert submitted.exit_code == 0, submitted.errors
    assert "not sent: debug.log (ignored by .gitignore)" in submitted.output
    job_id = submitted.output.partition("Submitted ")[2].partition(";")[0]
    shutil.rmtree(folder)
    go.touch()
    async with client_of(product, "projects") as client:
        async with asyncio.timeout(JOB_SECONDS):
            job = await client.job(job_id).wait()
        assert (job.state, job.attempts) == (JobState.COMPLETED, 2), job.reason
        assert job.spec.project is not None
        assert len(job.spec.project.sha256) == 64
        output = b"".join([chunk async for chunk in client.logs(job_id)]).decode()
        # The second run: nothing that the first one changed is there.
        assert "started with 42 as submitted 50000 ['--lr', '0.1', 'more'] ANSWER = 42" in output
    shown = await tiercel("show", job_id, "--json", state_dir=product.state_dir, tenant="projects")
    assert shown.content["spec"]["project"]["sha256"] == job.spec.project.sha256
    assert str(folder) not in shown.output


async def test_a_spec_that_cannot_start_is_refused_with_a_sentence_and_any_field_can_be_set(
    product: Product, tmp_path: Path
) -> None:
    (tmp_path / "tiercel.yaml").write_text(SPEC)
    refused = await tiercel("submit", str(tmp_path), state_dir=product.state_dir, tenant="projects")
    assert refused.exit_code != 0
    assert "command: there is no file 'train.py' in the project; give a path relative" in refused.errors
    for change, message in (("resources.memory=lots", "resources.memory"), ("nothing", "write FIELD=VALUE")):
        refused = await tiercel(
            "submit", str(tmp_path), "--set", change, state_dir=product.state_dir, tenant="projects"
        )
        assert refused.exit_code != 0
        assert message in refused.errors


@sdk.job(endpoint="function", metric="accuracy", tiers=[0.5])
def learn_digits(width: int) -> None:
    """Train the perceptron on scikit-learn's digits."""
    from tiercel.trainer_agent.workloads import digits_mlp

    digits_mlp.main(["--width", str(width), "--batch-size", "64", "--learning-rate", "0.1"])


async def test_a_function_is_trained_and_shipped(product: Product) -> None:
    async with client_of(product, "projects") as client:
        job = await client.submit(learn_digits.with_arguments(width=64))
        async with asyncio.timeout(JOB_SECONDS):
            assert (await job.wait()).state is JobState.COMPLETED
