"""The examples with callbacks: killed, resumed as if nothing had been, delivered, answering as their library does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from testing.trainer_service import ROOT, StartServer, TrainingProcess, training_environment
from testing.warm_python import TRAINING, WarmPython, warm_python

MODULES = ("lightning.pytorch", "transformers.trainer", "sklearn.datasets", *TRAINING)
TREES = ("lightgbm", "xgboost", "onnxmltools.convert", "sklearn.model_selection", "onnx.checker", "onnxruntime")
WAITS_IN_EPOCH = 4


@pytest.fixture(scope="module")
def python_with_callbacks() -> Iterator[WarmPython]:
    with warm_python(training_environment(), MODULES) as python:
        yield python


@pytest.fixture(scope="module")
def python_of_trees() -> Iterator[WarmPython]:
    with warm_python(training_environment(), (*TREES, "tiercel.trainer")) as python:
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


CHANGES = {
    "lightning": {
        "max_epochs=20": "max_epochs=7",
        "example_input=images[1300:]": "example_input=images[1300:], checkpoint_seconds=0.0",
        "images, labels = batch\n        self.log(": (
            "images, labels = batch\n"
            f'        if self.current_epoch == {WAITS_IN_EPOCH - 1} and "WAITS" in os.environ:\n'
            "            time.sleep(100)\n        self.log("
        ),
    },
    "huggingface": {
        'output_dir="out"': "output_dir=os.environ['TMPDIR']",
        '{"input_ids": words[1000:]}': '{"input_ids": words[1000:]}, checkpoint_seconds=0.0',
        'tiers are about."""\n': (
            f'tiers are about."""\n    if trainer.state.epoch > {WAITS_IN_EPOCH - 0.5} and "WAITS" in os.environ:\n'
            "        time.sleep(100)\n"
        ),
    },
}


@pytest.mark.parametrize(
    ("name", "epochs", "metric", "tiers"),
    [("lightning", 7, "val_accuracy", (0.80, 0.90)), ("huggingface", 12, "eval_accuracy", (0.60, 0.98))],
)
def test_a_script_goes_on_where_it_was_killed_as_if_it_had_not_been(
    name: str,
    epochs: int,
    metric: str,
    tiers: tuple[float, float],
    tmp_path: Path,
    run_directory: Path,
    start_server: StartServer,
    python_with_callbacks: WarmPython,
) -> None:
    script = str(example(name, tmp_path, CHANGES[name]))
    environment = {"TMPDIR": str(tmp_path)}

    def start(run_directory: Path | None = run_directory, **more: str) -> TrainingProcess:
        return TrainingProcess(
            script, run_directory=run_directory, environment=environment | more, python=python_with_callbacks
        )

    server = start_server(metric=metric, tiers=tiers[:1])
    killed = start(WAITS="yes")
    server.wait_until(lambda sent: sent.export_done and len(sent.reports) == WAITS_IN_EPOCH - 1)
    killed.kill()
    server.stop()
    later = start_server(metric=metric, tiers=tiers[1:])
    finished, alone = start().wait(), start(None).wait()
    assert finished.returncode == alone.returncode == 0, finished.output + alone.output
    wanted, found = epochs_of(alone.output), epochs_of(finished.output)
    assert sorted(wanted) == list(range(1, epochs + 1))
    assert 1 < min(found) <= WAITS_IN_EPOCH
    assert found == {epoch: metrics for epoch, metrics in wanted.items() if epoch >= min(found)}
    (first,), (second,) = server.recorded.export_done, later.recorded.export_done
    assert (first.error, second.error) == ("", "")
    assert first.value >= tiers[0]
    assert second.value >= tiers[1]
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


TREES_WAIT = {
    "lightgbm": (
        "lightgbm.early_stopping(10)",
        "lightgbm.early_stopping(3), wait",
        f"""
def wait(env):
    if env.iteration == {WAITS_IN_EPOCH} and "WAITS" in os.environ:
        time.sleep(100)
""",
    ),
    "xgboost": (
        "xgboost.callback.EarlyStopping(rounds=10)",
        "xgboost.callback.EarlyStopping(rounds=3), Slower(lambda epoch: 0.4 * 0.9**epoch), Waits()",
        f"""
import xgboost
Slower = xgboost.callback.LearningRateScheduler
class Waits(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        if epoch == {WAITS_IN_EPOCH} and "WAITS" in os.environ:
            time.sleep(100)
        return False
""",
    ),
}
GO_ON = {"lightgbm": "    init_model=callback.booster,\n", "xgboost": "    xgb_model=callback.booster,\n"}


@pytest.mark.parametrize(("name", "metric"), [("lightgbm", "test_multi_error"), ("xgboost", "test_merror")])
def test_a_booster_goes_on_where_it_was_killed_and_stops_early_where_it_would_have(
    name: str,
    metric: str,
    tmp_path: Path,
    run_directory: Path,
    start_server: StartServer,
    python_of_trees: WarmPython,
) -> None:
    old, new, waiting = TREES_WAIT[name]
    script = example(name, tmp_path, {f"others=[{old}]": f"others=[{new}], checkpoint_seconds=0.0"})
    script.write_text(script.read_text().replace("import time\n", f"import time\n{waiting}", 1))

    def start(run_directory: Path | None = run_directory, **environment: str) -> TrainingProcess:
        return TrainingProcess(
            str(script), run_directory=run_directory, environment=environment, python=python_of_trees
        )

    server = start_server(metric=metric, tiers=(0.9,), smaller_is_better=True)
    killed = start(WAITS="yes")
    server.wait_until(lambda sent: sent.export_done and len(sent.reports) > WAITS_IN_EPOCH)
    killed.kill()
    server.stop()
    assert [report.epoch for report in server.recorded.reports][: WAITS_IN_EPOCH + 1] == [1, 2, 3, 4, 5]
    alone = start(None).wait()
    wanted = epochs_of(alone.output)
    assert WAITS_IN_EPOCH < len(wanted) < 40, "it stops early"
    # A last epoch is saved in any case.
    later = start_server(metric=metric, tiers=(0.08,), smaller_is_better=True, max_epochs=len(wanted))
    finished = start().wait()
    assert finished.returncode == alone.returncode == 0, finished.output + alone.output
    found = epochs_of(finished.output)
    assert 1 < min(found) <= WAITS_IN_EPOCH + 2
    assert found == {epoch: metrics for epoch, metrics in wanted.items() if epoch >= min(found)}
    assert finished.output.splitlines()[-1] == alone.output.splitlines()[-1], "the best round, and how good it is"
    (first,), (second,) = server.recorded.export_done, later.recorded.export_done
    assert (first.error, second.error) == ("", "")
    assert second.value <= 0.08 < first.value
    check_answers(run_directory / "exports" / "job-tier-1")

    ended = start().wait()  # there is no round left
    assert (ended.returncode, epochs_of(ended.output)) == (0, {}), ended.output
    assert ended.output.splitlines()[-1] == alone.output.splitlines()[-1]
    script.write_text(script.read_text().replace(GO_ON[name], ""))
    forgets = start().wait()
    assert forgets.returncode == 1
    assert GO_ON[name].strip(" \n,") in forgets.output.splitlines()[-1], forgets.output


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


FORGETS = """
import numpy as np
from transformers import TrainerControl, TrainerState, TrainingArguments
from tiercel.trainer.huggingface import TiercelCallback
callback = TiercelCallback({"input_ids": np.ones((1, 7), np.int64)})
callback._training.load_state_dict({"counters": '{"global_step": 4}'})
callback.on_train_begin(TrainingArguments(output_dir="nowhere", use_cpu=True), TrainerState(), TrainerControl())
"""


def test_a_script_of_transformers_that_forgets_to_go_on_from_its_checkpoint_is_told_so(
    tmp_path: Path, python_with_callbacks: WarmPython
) -> None:
    (tmp_path / "train.py").write_text(FORGETS)
    told = TrainingProcess(str(tmp_path / "train.py"), python=python_with_callbacks).wait()
    assert told.returncode == 1
    assert "CheckpointError: " in told.output.splitlines()[-1]
    assert "resume_from_checkpoint=callback.checkpoint" in told.output.splitlines()[-1]
