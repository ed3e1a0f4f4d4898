"""The models servers are measured with, exported as a training job exports its own.

The first three are for comparing servers. ``sensors`` is for overload: a small request and a model that takes long, so
that neither the bytes nor the load generator are what is measured. ``resnet64`` is ResNet-18 in its full width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

INPUT, OUTPUT = "input", "output"
"""Names that the exporter gives to a model with one input and one output."""

CLASSES = 10


@dataclass(frozen=True, slots=True)
class Kind:
    """A model to serve."""

    name: str  # what it is served as
    shape: tuple[int, ...]  # of one row, without the batch axis
    about: str  # for people

    @property
    def elements(self) -> int:
        """Numbers in one row."""
        return math.prod(self.shape)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("mlp", (64,), "64-128-10, ReLU"),
            Kind("lenet", (1, 28, 28), "LeNet-5 with ReLU, 62,000 parameters"),
            Kind("resnet", (3, 32, 32), "ResNet-18 for 32x32 images, width 16, 700,000 parameters"),
            Kind("resnet64", (3, 32, 32), "ResNet-18 for 32x32 images, width 64, 11 million parameters"),
            Kind("sensors", (64,), "64 numbers as 8x8 through 25 convolutions of 128 channels, 3.5 million parameters"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Model:
    """A model on disk."""

    kind: Kind  # which
    path: Path  # its ONNX file
    row: Array  # one row to ask about, of shape [1, ...]; its numbers have four decimals
    answer: Array  # what ONNX Runtime answers to it, of shape [1, CLASSES]

    @property
    def name(self) -> str:
        """What it is served as."""
        return self.kind.name


def exported(folder: Path, names: tuple[str, ...] = tuple(KINDS)) -> dict[str, Model]:
    """The models of these names, exported into the folder unless they lie there already."""
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _model(KINDS[name], folder / f"{name}.onnx") for name in names}


def _model(kind: Kind, path: Path) -> Model:
    if not path.exists():
        _export(kind, path)
    # Four decimals, as a feature store or a camera would send: a float's 17 digits would measure the parser alone.
    row = np.random.default_rng(7).random((1, *kind.shape)).round(4).astype(np.float32)
    return Model(kind, path, row, _asked(path, row))


def _asked(path: Path, row: Array) -> Array:
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return cast("Array", session.run([OUTPUT], {INPUT: row})[0])


def _export(kind: Kind, path: Path) -> None:
    import torch

    from tiercel.trainer_agent.trainer.pytorch.exporting import export_model
    from tiercel.trainer_agent.trainer.samples import Samples
    from tiercel.trainer_agent.trainer.signature import Signature

    torch.manual_seed(0)
    network = _network(kind.name).eval()
    signature = Signature.from_example(torch.rand(1, *kind.shape))
    temporary = path.with_suffix(".new")
    export_model(network, signature, Samples(signature), temporary)
    temporary.replace(path)


def _network(name: str) -> Any:
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    if name == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
        )  # fmt: skip
    if name == "sensors":
        return _convolutions(channels=128, count=25)
    return _resnet(width=64 if name == "resnet64" else 16)


def _convolutions(channels: int, count: int) -> Any:
    """Much to compute for few numbers, and in a batch no less for each."""
    from torch import nn

    layers: list[nn.Module] = [nn.Unflatten(1, (1, 8, 8))]
    for index in range(count):
        layer = nn.Conv2d(channels if index else 1, channels, 3, padding=1)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # else nothing of the input would reach the end
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def _resnet(width: int) -> Any:
    """A ResNet-18 with the small stem that 32x32 images need (He et al. 2016, section 4.2)."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
            )  # fmt: skip
            same = before == after and stride == 1
            self.beside: nn.Module = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            )
            self.end = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.end(self.body(x) + self.beside(x))

    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        for index in range(2):
            after = width * 2**stage
            layers.append(Block(before, after, 2 if stage and not index else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))
