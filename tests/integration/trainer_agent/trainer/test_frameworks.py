"""The examples of frameworks beside PyTorch: killed, resumed, delivered twice, and answering as the framework does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from testing.trainer_service import ROOT, StartServer, TrainingProcess, training_environment
from testing.warm_python import WarmPython, warm_python

MODULES = ("sklearn.datasets", "sklearn.model_selection", "lightgbm", "xgboost", "onnxmltools.convert", "onnx.checker")
WAITS_IN_EPOCH = 5


@pytest.fixture(scope="module")
def python_of_trees() -> Iterator[WarmPython]:
    with warm_python(training_environment(), (*MODULES, "onnxruntime", "tiercel.trainer")) as python:
        yield python


def script_that_waits(example: str, folder: Path) -> Path:
    """The example, which saves what it exports with its answers, and waits in its first run to be killed."""
    changes = {
        '    """The model as ONNX."""\n': f'    np.savez("{folder}/said.npz", rows=x_test, answers=predict(x_test))\n',
        "save=lambda: booster": "save=lambda: booster, checkpoint_seconds=0.0",
        "for _ in job.epochs(": "is_first = booster is None\nfor epoch in job.epochs(",
    }
    text = (ROOT / "examples" / example / "train.py").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    wait = f"    if epoch == {WAITS_IN_EPOCH} and is_first:\n        time.sleep(100)\n"
    path = folder / "train.py"
    path.write_text("import time\n" + text + wait)
    return path


@pytest.mark.parametrize("example", ["lightgbm", "xgboost"])
def test_an_example_goes_on_where_it_was_killed_and_its_files_answer_as_it_does(
    example: str, tmp_path: Path, run_directory: Path, start_server: StartServer, python_of_trees: WarmPython
) -> None:
    script = str(script_that_waits(example, tmp_path))
    server = start_server(tiers=(0.90,))
    killed = TrainingProcess(script, run_directory=run_directory, python=python_of_trees)
    server.wait_until(lambda sent: sent.export_done and len(sent.reports) >= WAITS_IN_EPOCH)
    killed.kill()
    server.stop()
    later = start_server(tiers=(0.93,), max_epochs=11)
    finished = TrainingProcess(script, run_directory=run_directory, python=python_of_trees).wait()
    assert finished.returncode == 0, finished.output
    went_on, *lines = [line for line in finished.output.splitlines() if line.startswith(("going on after", "epoch "))]
    # The library leaves out what would cost too much of the time.
    done = int(went_on.removeprefix("going on after epoch "))
    assert 1 <= done < WAITS_IN_EPOCH
    assert [int(line.split()[1]) for line in lines] == list(range(done + 1, 12))
    (first,), (second,) = server.recorded.export_done, later.recorded.export_done
    assert (first.error, second.error) == ("", "")
    assert 0.90 <= first.value < 0.93 <= second.value
    file = run_directory / "exports" / "job-tier-1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    with np.load(tmp_path / "said.npz") as said:
        _, scores = session.run(None, {"X": said["rows"]})
        np.testing.assert_allclose(scores, said["answers"], atol=1e-5)
