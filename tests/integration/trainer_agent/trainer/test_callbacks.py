"""The examples with callbacks: killed, resumed as if nothing had been, delivered, and answering as PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from testing.trainer_service import ROOT, StartServer, TrainingProcess, training_environment
from testing.warm_python import TRAINING, WarmPython, warm_python

MODULES = ("lightning.pytorch", "sklearn.datasets", *TRAINING)
WAITS_IN_EPOCH = 6


@pytest.fixture(scope="module")
def python_with_callbacks() -> Iterator[WarmPython]:
    with warm_python(training_environment(), MODULES) as python:
        yield python


def example(name: str, folder: Path, changes: dict[str, str]) -> Path:
    """The example, changed, in a folder of its own."""
    text = (ROOT / "examples" / name / "train.py").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / "train.py"
    path.write_text("import os\nimport time\n" + text)
    return path


def epochs_of(output: str) -> dict[int, str]:
    """What was reported, by epoch."""
    lines = [line.split(maxsplit=2) for line in output.splitlines() if line.startswith("epoch ")]
    return {int(epoch): metrics for _, epoch, metrics in lines}


def test_lightning_goes_on_where_it_was_killed_as_if_it_had_not_been(
    tmp_path: Path, run_directory: Path, start_server: StartServer, python_with_callbacks: WarmPython
) -> None:
    waits = f'self.current_epoch == {WAITS_IN_EPOCH - 1} and os.environ.get("WAITS")'
    wait = f"if {waits}:\n            time.sleep(100)\n        "
    script = str(
        example(
            "lightning",
            tmp_path,
            {
                "max_epochs=20": "max_epochs=12",
                "example_input=images[1300:]": "example_input=images[1300:], checkpoint_seconds=0.0",
                "images, labels = batch\n        self.log(": f"images, labels = batch\n        {wait}self.log(",
            },
        )
    )
    server = start_server(metric="val_accuracy", tiers=(0.85,))
    killed = TrainingProcess(
        script, run_directory=run_directory, environment={"WAITS": "yes"}, python=python_with_callbacks
    )
    server.wait_until(lambda sent: sent.export_done and len(sent.reports) == WAITS_IN_EPOCH - 1)
    killed.kill()
    server.stop()
    later = start_server(metric="val_accuracy", tiers=(0.91,))
    finished = TrainingProcess(script, run_directory=run_directory, python=python_with_callbacks).wait()
    alone = TrainingProcess(script, python=python_with_callbacks).wait()
    assert finished.returncode == alone.returncode == 0, finished.output + alone.output
    wanted, found = epochs_of(alone.output), epochs_of(finished.output)
    assert sorted(wanted) == list(range(1, 13))
    assert 1 < min(found) <= WAITS_IN_EPOCH
    assert found == {epoch: metrics for epoch, metrics in wanted.items() if epoch >= min(found)}
    (first,), (second,) = server.recorded.export_done, later.recorded.export_done
    assert (first.error, second.error) == ("", "")
    assert 0.85 <= first.value < 0.91 <= second.value
    check_answers(run_directory / "exports" / "job-tier-1")


def check_answers(folder: Path) -> None:
    """The file answers as its model did."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    with np.load(folder / "reference.npz") as said:
        inputs = {name.removeprefix("input_"): said[name] for name in said if name.startswith("input_")}
        answers = {name.removeprefix("output_"): said[name] for name in said if name.startswith("output_")}
    found = session.run(list(answers), inputs)
    assert answers
    for array, wanted in zip(found, answers.values(), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-3, atol=1e-4)


def test_lightning_stops_between_two_steps_and_reports_no_epoch_that_was_not_validated(
    tmp_path: Path, run_directory: Path, start_server: StartServer, python_with_callbacks: WarmPython
) -> None:
    del run_directory
    changes = {"max_epochs=20": "max_epochs=-1, check_val_every_n_epoch=2, min_epochs=10**6"}
    server = start_server(metric="val_accuracy", tiers=(2.0,))
    script = TrainingProcess(
        str(example("lightning", tmp_path, changes)), run_directory=server.run_directory, python=python_with_callbacks
    )
    server.wait_until(lambda sent: len(sent.reports) >= 2)
    server.request_stop()
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert "stopping: a test" in finished.output
    validated = [report.epoch for report in server.recorded.reports]
    assert [epoch for epoch in validated[:-1] if epoch % 2] == []
