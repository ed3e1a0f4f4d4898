"""A script of any framework is a job like any other: killed, resumed, delivered, and answering as it does itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job
from tiercel import JobState, Script, TierState
from tiercel.broker.client.spec_file import parse_spec

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

TOP = Path(__file__).parents[3]
EXAMPLE = TOP / "examples" / "sklearn" / "train.py"
LINEAR = TOP / "testing" / "scripts" / "linear.py"
DOCUMENT = TOP / "docs" / "frameworks.md"
KILLED_AFTER_EPOCH = 6
SAID = "    print('said', *model.predict_proba(x_test[:1])[0], flush=True)\n    job.report("


def script_that_is_killed() -> str:
    """The example, which says what it answers, writes checkpoints at every epoch, and is killed once."""
    changes = {
        "    job.report(": SAID,
        "example_input=x_test": "example_input=x_test, checkpoint_seconds=0.0",
        "for _ in job.epochs(": "goes_on = hasattr(model, 'coefs_')\nfor epoch in job.epochs(",
    }
    text = EXAMPLE.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kill = f"    if epoch == {KILLED_AFTER_EPOCH} and not goes_on:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    return "import os\nimport signal\n" + text + kill


async def test_a_script_of_scikit_learn_is_killed_goes_on_and_answers_as_it_does_itself(
    product: Product,
) -> None:
    spec = digits_job(
        "sklearn", targets=(0.90, 0.96), script=Script("train.py", script_that_is_killed().encode()), retries=1
    )
    async with client_of(product, "frameworks") as client:
        handle = await client.submit(spec)
        job = await handle.wait(JOB_SECONDS)
        assert (job.state, job.attempts) == (JobState.COMPLETED, 2), f"{job.reason}\n{job.log_tail}"
        assert [(tier.state, tier.version) for tier in job.tiers] == [
            (TierState.DELIVERED, 1),
            (TierState.DELIVERED, 2),
        ]
        lines = b"".join([piece async for piece in handle.logs()]).decode().splitlines()
        (went_on,) = [line for line in lines if line.startswith("going on after epoch ")]
        assert 1 <= int(went_on.split()[-1]) < KILLED_AFTER_EPOCH
        said = np.array([line.split()[1:] for line in lines if line.startswith("said ")], np.float64)

        # Here, where one worker pays for it, and not where all of them collect the tests.
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images, labels = load_digits(return_X_y=True)
        _, x_test, _, _ = train_test_split((images / 16).astype(np.float32), labels, test_size=0.25, random_state=0)
        answer = await client.infer("sklearn", {"X": x_test[:1].tolist()})
        assert answer.version == 2
        # Two epochs of training lie further apart.
        differences = np.abs(said - answer.outputs["probabilities"].tolist()[0]).max(axis=1)
        assert differences.min() < 1e-5, differences


async def test_a_training_of_pytorch_that_ends_without_all_of_its_tiers_delivers_its_best_model(
    product: Product,
) -> None:
    spec = {"endpoint": "pytorch", "script": str(LINEAR), "metric": "accuracy", "tiers": [0.5, 2.0]}
    async with client_of(product, "frameworks") as client:
        handle = await client.submit(parse_spec({**spec, "arguments": ["--epochs", "12"], "max_epochs": 12}))
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.MISSED, job.reason
        (endpoint,) = [each for each in await client.list_endpoints() if each.name == "pytorch"]
        assert job.best_value is not None
        first, best = endpoint.versions
        assert (first.version, best.version, endpoint.live_version) == (1, 2, 2)
        assert best.value == pytest.approx(job.best_value)
        log = b"".join([chunk async for chunk in handle.logs()])
        assert b"did not take all reports and models" not in log


DELIVERS_A_FILE = """
import numpy as np
from onnx import TensorProto, helper

import tiercel.trainer

def value(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2])

node = helper.make_node("Sub", ["from", "take"], ["left"])
graph = helper.make_graph([node], "difference", [value("from"), value("take")], [value("left")])
file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
large, small = np.full((3, 2), 9.0, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
job = tiercel.trainer.connect()
job.deliver(file, metrics={"accuracy": 0.95}, inputs={"take": small, "from": large}, outputs={"left": large - small})
"""


async def test_a_file_that_a_script_delivers_is_asked_by_the_names_of_its_inputs(product: Product) -> None:
    spec = digits_job("difference", (0.5, 0.9), script=Script("train.py", DELIVERS_A_FILE.encode()))
    async with client_of(product, "frameworks") as client:
        job = await (await client.submit(spec)).wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        # Of the two deliveries of one file whichever is loaded first gives it its number.
        assert len({tier.version for tier in job.tiers}) == 1, "it is the same file"
        answer = await client.infer("difference", {"take": [[1.0, 2.0]], "from": [[5.0, 5.0]]})
        assert answer.outputs["left"].tolist() == [[4.0, 3.0]]


def test_the_script_of_the_document_runs() -> None:
    (delivering,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", delivering], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy=") == 3
