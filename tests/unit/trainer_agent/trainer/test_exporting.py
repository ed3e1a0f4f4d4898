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

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.pytorch.calling import fitted
from tiercel.trainer_agent.trainer.pytorch.exporting import check_same_answers, export_model
from tiercel.trainer_agent.trainer.pytorch.models import with_free_lengths
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


def test_a_model_that_answers_differently_each_time_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailedError, match="otherwise each time it is asked"):
        export(DrawsLots(), torch.ones(1, 3), tmp_path / "model.onnx")


def test_a_model_that_takes_one_row_only_is_refused(tmp_path: Path) -> None:
    class OneRow(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows.reshape(1, 3)

    with pytest.raises(DeliveryFailedError, match="does not answer a batch of 7 rows"):
        export(OneRow(), torch.ones(1, 3), tmp_path / "model.onnx")


class Decides(nn.Module):
    """Takes one of two ways, by the sign of what it is given: tracing keeps the one that its example took."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        up: torch.Tensor = self.up(rows)
        down: torch.Tensor = self.down(rows)
        return up if rows.sum() > 0 else down


def test_a_model_that_decides_by_its_numbers_is_not_traced_to_one_of_its_ways(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailedError, match=r"decide by the numbers .* one way only \(test_exporting\.py"):
        export(Decides(), torch.ones(1, 3), tmp_path / "model.onnx")


class Branches(nn.Module):
    """The same where PyTorch can say it in the graph, so that both ways are exported."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        chosen = rows.sum(dim=1, keepdim=True) > 0
        return torch.where(chosen, self.up(rows), self.down(rows))


def test_a_choice_within_the_graph_is_exported_whole(tmp_path: Path) -> None:
    model, path = Branches(), tmp_path / "model.onnx"
    export(model, torch.ones(1, 3), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = -torch.ones(4, 3)
    with torch.no_grad():
        np.testing.assert_allclose(session.run(None, {"input": rows.numpy()})[0], model(rows).numpy(), rtol=1e-3)


def test_rows_that_differ_in_sign_show_what_the_real_ones_do_not(tmp_path: Path) -> None:
    """What was exported cuts off at zero; the model does not, and all rows that it was asked about are above."""
    signature = Signature.from_example(torch.ones(1, 3))
    samples = Samples(signature)
    samples.remember([np.linspace(0.1, 1.0, 30, dtype=np.float32).reshape(10, 3)])
    exported = export_model(nn.ReLU().eval(), signature, samples, tmp_path / "model.onnx").model
    with pytest.raises(DeliveryFailedError, match=r"disagree on output by up to .* for rows of the other sign"):
        check_same_answers(nn.Identity(), signature, exported, samples)


def test_what_could_not_be_compared_is_said(tmp_path: Path) -> None:
    class Roots(nn.Module):
        def forward(self, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            if not torch.onnx.is_in_onnx_export() and bool((rows < 0).any()):
                raise ValueError("a length cannot be negative")
            return rows.sqrt() + ids

    example = {"rows": torch.ones(1, 3), "ids": torch.ones(1, 3, dtype=torch.int64)}
    signature = fitted(Signature.from_example(example), Roots())
    summary = export_model(Roots().eval(), signature, Samples(signature), tmp_path / "model.onnx").compared.summary
    assert "not on rows of the other sign (ValueError: a length cannot be negative)" in summary
    assert summary.endswith("other values of ids")


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.mixer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        embedded = self.words(ids) * mask.unsqueeze(-1)
        mixed: torch.Tensor = self.mixer(embedded, embedded, embedded, need_weights=False)[0]
        return mixed.mean(dim=1)


def test_texts_of_other_lengths_than_the_example_are_answered(tmp_path: Path) -> None:
    model, path = Text().eval(), tmp_path / "model.onnx"
    # In another order than the model's parameters: they are passed by name.
    example = {"mask": torch.ones(2, 12), "ids": torch.arange(24).reshape(2, 12) % 20}
    signature = fitted(Signature.from_example(example), model, {"ids": {1: "tokens"}, "mask": {1: "tokens"}})
    export_model(model, signature, Samples(signature), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows, tokens in ((1, 12), (3, 5), (2, 30)):
        ids, mask = torch.arange(rows * tokens).reshape(rows, tokens) % 20, torch.ones(rows, tokens)
        with torch.no_grad():
            expected = model(ids, mask).numpy()
        (answer,) = session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})
        np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-4)


def test_which_lengths_are_free_is_found_out_where_the_model_allows() -> None:
    class Bag(nn.Module):
        def __init__(self, length: int | None) -> None:
            super().__init__()
            self.words, self.length = nn.Embedding(20, 4), length

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            if self.length not in (None, ids.shape[1]):
                raise ValueError("another length")
            return torch.as_tensor(self.words(ids).mean(dim=1))

    signature = Signature.from_example(torch.ones(2, 10, dtype=torch.int64))
    assert with_free_lengths(signature, Bag(None)).free_axes == {"input": {1: "length"}}
    assert with_free_lengths(signature, Bag(10)).free_axes == {}
    pictures = Signature.from_example(torch.ones(2, 10))
    assert with_free_lengths(pictures, nn.Linear(10, 2)).free_axes == {}


def test_the_graph_of_a_failed_trace_stays_out_of_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Bessel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(30)])

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(torch.special.bessel_j0(self.layers(rows)))

    with pytest.raises(DeliveryFailedError, match=r"^TorchScript exporter: .*bessel.*; dynamo exporter: "):
        export(Bessel(), torch.ones(1, 8), tmp_path / "model.onnx")
    written = capfd.readouterr()
    assert "Torch IR graph" not in written.out
    assert len(written.out) + len(written.err) < 2000
