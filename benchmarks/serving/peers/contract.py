"""What the comparison has to know of a server: how to start it, and what it takes at which path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.bodies import Form
from benchmarks.serving.models import Model
from benchmarks.serving.processes import Launch

V2_PATH = "/v2/models/{model}/infer"
BATCH = 32
"""Largest batch, for servers that have to be told one."""

WINDOW_MS = 1
"""Batching window in milliseconds, for servers that have none or one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a server is started."""

    folder: Path  # its own, empty, absolute
    models: Sequence[Model]  # what it serves
    python: Path  # interpreter of its environment

    def program(self, name: str) -> str:
        """A command of the server's environment."""
        return str(self.python.with_name(name))

    def write(self, files: Mapping[str, str]) -> None:
        """Write files by their paths below the folder, and the models beside them as NAME.onnx."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        for model in self.models:
            shutil.copyfile(model.path, self.folder / f"{model.name}.onnx")

    def variables(self, **more: str) -> dict[str, str]:
        """Variables of the server's program: the shape of one row of each model, largest batch, window, and more."""
        shapes = {model.name: list(model.kind.shape) for model in self.models}
        return {"SHAPES": json.dumps(shapes), "BATCH": str(BATCH), "WINDOW_MS": str(WINDOW_MS), **more}

    def put_repository(self) -> Path:
        """A repository in Triton's layout with version 1 of each model; returns its folder."""
        for model in self.models:
            folder = self.folder / "models" / model.name / "1"
            folder.mkdir(parents=True)
            shutil.copyfile(model.path, folder / "model.onnx")
        return self.folder / "models"


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare with."""

    name: str  # short, for tables and ``--peer``
    about: str  # what it is, and how it was set up
    start: Callable[[Setting], Launch]  # writes what it needs into the setting's folder, and says how it is started
    routes: Mapping[Form, str]  # paths by the form they take; ``{model}`` stands for the model's name
    environment: str = ""  # name of its pins and environment; empty for this project's own
    distribution: str = ""  # the package whose version tells the server's
    version: str = ""  # the server's own, where its package counts differently
    one_model: bool = False  # it serves one model only, and is started for each of them
    programs: tuple[str, ...] = ()  # commands that it needs besides
    # It comes near ours, so that it is measured for 2 s at a time and in every round; the others, which are 5 to 100
    # times slower, for a second and in the first round only.
    is_fast: bool = False
    reference: bool = False  # it is no product but a limit to compare with

    @property
    def window_seconds(self) -> int:
        """How long each point is measured."""
        return 2 if self.is_fast else 1
