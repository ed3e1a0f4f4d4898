"""Trains the learned scheduler by maskable PPO, beginning with the heuristic; see :mod:`benchmarks.qoe.policy`.

The same seed gives the same policy on the same machine and versions; across machines sums of floats may differ.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.qoe.environment import PoolEnvironment
from benchmarks.qoe.learned import MANIFEST, POLICY
from benchmarks.qoe.observation import ACTIONS, FEATURES
from benchmarks.qoe.policy import Scorer, ScoringPolicy
from tiercel.serving.scheduling.interface import Profile

LIBRARIES = ("gymnasium", "stable-baselines3", "sb3-contrib", "torch", "onnx")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long and how the policy is trained."""

    seed: int = 7  # of everything
    steps: int = 60_000  # decisions of reinforcement learning
    environments: int = 8  # pools side by side
    horizon: int = 256  # decisions of each pool between two updates
    learning_rate: float = 5e-4  # of PPO, falling to nothing in a straight line
    discount: float = 0.98  # per decision


def train(recipe: Recipe, measured: tuple[Profile, ...] | None, say: Any = print) -> Scorer:
    """The trained scorer."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)
    environments = DummyVecEnv(
        [
            (lambda index=index: PoolEnvironment(1000 * recipe.seed + index, measured))  # type: ignore[misc]
            for index in range(recipe.environments)
        ]
    )
    model = MaskablePPO(
        ScoringPolicy,
        environments,
        learning_rate=lambda left: recipe.learning_rate * left,
        n_steps=recipe.horizon,
        batch_size=512,
        n_epochs=5,
        gamma=recipe.discount,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        max_grad_norm=0.5,
        target_kl=0.05,
        seed=recipe.seed,
        device="cpu",
    )
    policy: Any = model.policy
    began = time.perf_counter()
    model.learn(recipe.steps, callback=_Progress(say))
    scorer: Scorer = policy.scorer
    say(f"trained: {time.perf_counter() - began:.0f} s")
    return scorer


class _Progress(BaseCallback):
    """Says how much more than the heuristic the last episodes earned."""

    def __init__(self, say: Any) -> None:
        super().__init__()
        self._say = say
        self._gains: list[float] = []

    def _on_step(self) -> bool:
        infos: Sequence[dict[str, Any]] = self.locals["infos"]
        self._gains += [info["gain"] for info in infos if "gain" in info]
        return True

    def _on_rollout_end(self) -> None:
        if len(self._gains) >= 60:
            gains = np.array(self._gains)
            error = gains.std() / np.sqrt(len(gains))
            self._say(f"  {self.num_timesteps} decisions: {gains.mean():+.4f} ± {error:.4f} over the heuristic")
            self._gains = []


def export(scorer: Scorer, path: Path) -> str:
    """Write the scorer as ONNX; returns its SHA-256."""
    scorer.eval()
    with redirect_stdout(io.StringIO()):
        torch.onnx.export(
            scorer,
            (torch.zeros(ACTIONS, FEATURES),),
            path,
            input_names=["rows"],
            output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("actions")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    forget_where_it_was_made(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def forget_where_it_was_made(path: Path) -> None:
    """Leave out of an ONNX file what the exporter notes of each operation: lines of code, and files of this machine."""
    model = onnx.load(path)
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        part.ClearField("metadata_props")
    for value in (*model.graph.input, *model.graph.output):
        value.ClearField("metadata_props")
    onnx.save(model, path)


def train_and_keep(
    recipe: Recipe, measured: tuple[Profile, ...] | None, path: Path = POLICY, manifest: Path = MANIFEST
) -> None:
    """Train, and replace the policy that is kept."""
    scorer = train(recipe, measured)
    sha256 = export(scorer, path)
    content = {
        "sha256": sha256,
        "made_by": "python -m benchmarks.qoe train",
        "recipe": {name: getattr(recipe, name) for name in recipe.__slots__},
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }
    manifest.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
