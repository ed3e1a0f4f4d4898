"""With the real exporters and the real ONNX Runtime."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from tiercel.trainer_agent.trainer.errors import ExportError
from tiercel.trainer_agent.trainer.exporting import export_model
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import ExampleInput, Signature


def export(model: nn.Module, example: ExampleInput, path: Path) -> None:
    signature = Signature.from_example(example)
    export_model(model.eval(), signature, Samples(signature), path)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.GRU(5, 8, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        states, _ = self.rows(rows)
        last: torch.Tensor = states[:, -1]
        return last


CONVOLUTION = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)), torch.randn(1, 4)),
        (CONVOLUTION, torch.randn(1, 1, 8, 8)),
        (Recurrent(), torch.randn(1, 6, 5)),
        (nn.Sequential(nn.Embedding(10, 4), nn.Flatten()), torch.arange(3).reshape(1, 3)),
    ],
)
def test_one_file_answers_batches_of_any_size(model: nn.Module, example: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export(model, example, path)
    onnx.checker.check_model(str(path), full_check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows in (1, 2, 33):
        batch = example.repeat(rows, *[1] * (example.ndim - 1))
        with torch.no_grad():
            expected = model(batch).numpy()
        (answer,) = session.run(["output"], {"input": batch.numpy()})
        np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-4)


def test_inputs_and_outputs_keep_their_names(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 3), nn.Linear(5, 3)

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": self.left(left) + self.right(right), "left_only": self.left(left)}

    path = tmp_path / "model.onnx"
    export(Two(), {"image": torch.randn(1, 4), "mask": torch.randn(1, 5)}, path)
    graph = onnx.load(str(path)).graph
    assert [value.name for value in graph.input] == ["image", "mask"]
    assert [value.name for value in graph.output] == ["sum", "left_only"]


class HyperbolicCosine(nn.Module):
    """The TorchScript exporter has no operator for it, its successor does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.cosh(self.layer(rows))


def test_where_the_fast_exporter_fails_its_successor_has_a_try(tmp_path: Path) -> None:
    model, path = HyperbolicCosine(), tmp_path / "model.onnx"
    export(model, torch.randn(1, 3), path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    batch = torch.randn(5, 3)
    with torch.no_grad():
        np.testing.assert_allclose(
            session.run(["output"], {"input": batch.numpy()})[0], model(batch).numpy(), rtol=1e-3
        )


class DrawsLots(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(rows)
        return scores * (1 + random.random())


def test_a_model_that_answers_differently_each_time_is_refused_by_both(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"TorchScript exporter: .* disagree on output .*; dynamo exporter: "):
        export(DrawsLots(), torch.ones(1, 3), tmp_path / "model.onnx")


def test_a_model_that_takes_one_row_only_is_refused(tmp_path: Path) -> None:
    class OneRow(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows.reshape(1, 3)

    with pytest.raises(ExportError, match="does not answer a batch of 7 rows"):
        export(OneRow(), torch.ones(1, 3), tmp_path / "model.onnx")
