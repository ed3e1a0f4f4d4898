"""Three real variants for scikit-learn's digits, trained here in seconds and kept; what they take on this machine."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import measured_batching
from tiercel.serving.scheduling.interface import BATCHES, Profile

_TRAINING_ROWS = 1300


@dataclass(frozen=True, slots=True)
class Variant:
    """A trained model."""

    name: str  # of it
    accuracy: float  # on the rows that were not trained on
    model: bytes  # the ONNX file's content: ``images`` (n, 8, 8) to ``scores`` (n, 10)


def _networks() -> dict[str, tuple[nn.Module, int]]:
    """By name: the network, and for how many epochs it is trained; the cheaper ones are left the less accurate."""
    return {
        "digits-small": (_convolutional(16, 2), 2),
        "digits-medium": (_convolutional(32, 2), 4),
        "digits-large": (_convolutional(48, 3), 12),
    }


def _convolutional(channels: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 8))]
    for index in range(depth):
        layers += [nn.Conv2d(channels if index else 1, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * channels, 10))


def kept_variants(folder: Path) -> list[Variant]:
    """The variants as a folder keeps them; trained and put there if it does not."""
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        put(fresh, train_variants())
        fresh.rename(folder)
    return [
        Variant(
            name,
            float(json.loads((folder / name / "1" / "accuracy.json").read_text(encoding="utf-8"))["accuracy"]),
            (folder / name / "1" / "model.onnx").read_bytes(),
        )
        for name in _networks()
    ]


def train_variants(seed: int = 0) -> list[Variant]:
    """The variants, the most accurate last."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.from_numpy((digits.images[order] / 16.0).astype(np.float32))
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    variants = []
    for name, (network, epochs) in _networks().items():
        optimizer = torch.optim.Adam(network.parameters(), 3e-3)
        for _ in range(epochs):
            rows = torch.randperm(_TRAINING_ROWS)
            for start in range(0, _TRAINING_ROWS, 50):
                chosen = rows[start : start + 50]
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        network.eval()
        with torch.no_grad():
            right = network(images[_TRAINING_ROWS:]).argmax(-1) == labels[_TRAINING_ROWS:]
        variants.append(Variant(name, float(right.float().mean()), _exported(network)))
    return variants


def _exported(network: nn.Module) -> bytes:
    with redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            network, (torch.zeros(2, 8, 8),), path, input_names=["images"], output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("batch")},), dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip
        return path.read_bytes()


def measured_profiles(variants: list[Variant]) -> tuple[Profile, ...]:
    """Their profiles on this machine, by the server's own measurement, the most accurate first."""
    profiles = []
    for variant in variants:
        measured = measured_batching(Session(variant.model), {}, BATCHES[-1]).profile
        assert measured is not None
        seconds = np.maximum.accumulate([measured.estimate(batch) for batch in BATCHES])
        profiles.append(Profile(variant.name, variant.accuracy, tuple(seconds.tolist())))
    return tuple(sorted(profiles, key=lambda profile: -profile.accuracy))


def put(repository: Path, variants: list[Variant]) -> None:
    """Put them into a repository, each as version 1 of a model of its name."""
    for variant in variants:
        folder = repository / variant.name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(variant.model)
        (folder / "accuracy.json").write_text(f'{{"accuracy": {variant.accuracy}}}', encoding="utf-8")
