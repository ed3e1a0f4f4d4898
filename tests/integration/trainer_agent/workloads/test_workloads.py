"""The shipped workloads, as jobs in processes of their own: they learn, and what they learn can be served."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from testing.trainer_service import TrainerServer, TrainingProcess
from testing.warm_python import WarmPython

PACKAGE = "tiercel.trainer_agent.workloads"


def start(
    workload: str, *arguments: str, run_directory: Path | None = None, python: WarmPython | None = None
) -> TrainingProcess:
    """Train it where HOME cannot be written to, as in a container whose root is read-only."""
    environment = {"HOME": "/proc", "TMPDIR": "/proc"}
    module = ("-m", f"{PACKAGE}.{workload}")
    return TrainingProcess(*module, *arguments, run_directory=run_directory, environment=environment, python=python)


def wait_curve(process: TrainingProcess) -> list[float]:
    """The values of the metric that it printed."""
    finished = process.wait()
    assert finished.returncode == 0, finished.output
    return [float(value) for value in re.findall(r"^epoch \d+  \w+=(.*)$", finished.output, re.MULTILINE)]


@pytest.mark.parametrize(
    ("workload", "metric", "epochs", "target", "outputs"),
    [
        ("digits_mlp", "accuracy", 2, 0.3, {"output_output": (7, 10)}),
        ("mnist_cnn", "accuracy", 1, 0.3, {"output_output": (7, 10)}),
        ("mnist_gru", "accuracy", 2, 0.2, {"output_output": (7, 10)}),
        (
            "mnist_vae",
            "loss",
            2,
            215.0,
            {"output_reconstruction": (7, 28, 28), "output_mean": (7, 20), "output_log_variance": (7, 20)},
        ),
    ],
)
def test_a_workload_learns_and_hands_its_model_over(
    tmp_path: Path,
    python: WarmPython,
    workload: str,
    metric: str,
    epochs: int,
    target: float,
    outputs: dict[str, tuple[int, ...]],
) -> None:
    begins = None if workload == "digits_mlp" else python  # one of them imports PyTorch where it cannot write either
    server = TrainerServer(
        tmp_path / "run", metric=metric, tiers=(target,), smaller_is_better=metric == "loss", request_exports=True
    )
    server.start()
    try:
        curve = wait_curve(
            start(workload, "--epochs", str(epochs), "--seed", "3", run_directory=tmp_path / "run", python=begins)
        )
    finally:
        server.stop()
    assert len(curve) == len(server.recorded.reports) >= epochs
    assert curve[-1] < curve[0] if metric == "loss" else curve[-1] > curve[0]
    (done,) = server.recorded.export_done
    assert done.error == ""
    folder = tmp_path / "run" / "exports" / "job-tier-1"
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    with np.load(folder / "reference.npz") as reference:
        assert {name: reference[name].shape for name in reference if name.startswith("output_")} == outputs
        answers = session.run([name.removeprefix("output_") for name in outputs], {"input": reference["input_input"]})
        for name, answer in zip(outputs, answers, strict=True):
            np.testing.assert_allclose(answer, reference[name], rtol=1e-3, atol=1e-4)


def test_the_same_seed_gives_the_same_curve_with_reports_spread_over_the_epoch(python: WarmPython) -> None:
    options = ("--epochs", "1", "--reports-per-epoch", "4")
    processes = [start("digits_mlp", *options, "--seed", seed, python=python) for seed in "112"]
    first, again, other = (wait_curve(process) for process in processes)
    assert len(first) == 4
    assert first == again
    assert first != other
