"""The policy's network: each action's row is scored by the same small perceptron; the value pools over actions."""

from __future__ import annotations

from typing import Any

import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import Tensor, nn

from benchmarks.qoe.observation import ACTIONS, FEATURES, HEURISTIC

HIDDEN = 48


MARGIN = 5.0
"""Score of the heuristic's action, and so how much another must be preferred to be taken instead."""


class Scorer(nn.Module):
    """Rows of shape (..., actions, features) to scores of shape (..., actions).

    The heuristic's action has a fixed score and all others begin with none, so that training begins with the heuristic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
        )
        last = self.layers[-1]
        if isinstance(last, nn.Linear):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """The scores."""
        base = rows[..., HEURISTIC]
        learned: Tensor = self.layers(rows).squeeze(-1)
        return learned * (1.0 - base) + MARGIN * base


class _Networks(nn.Module):
    """Scores and value side by side, in the form in which stable-baselines3 asks for them."""

    latent_dim_pi = ACTIONS
    latent_dim_vf = HIDDEN

    def __init__(self) -> None:
        super().__init__()
        self.scorer = Scorer()
        self.row_value = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh())

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, and what the value is read from."""
        return self.forward_actor(rows), self.forward_critic(rows)

    def forward_actor(self, rows: Tensor) -> Tensor:
        """Scores of actions."""
        scores: Tensor = self.scorer(rows)
        return scores

    def forward_critic(self, rows: Tensor) -> Tensor:
        """What the value is read from: the mean over actions."""
        mean: Tensor = self.row_value(rows).mean(dim=-2)
        return mean


class _Rows(nn.Module):
    """Stands where stable-baselines3 would flatten the observation; leaves it as it is."""

    features_dim = FEATURES

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.observation_space = observation_space

    def forward(self, rows: Tensor) -> Tensor:
        """The same."""
        return rows.float()


class ScoringPolicy(MaskableActorCriticPolicy):
    """A maskable policy whose scores come straight from the scorer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options |= {"features_extractor_class": _Rows, "ortho_init": False}
        super().__init__(*arguments, **options)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = _Networks()  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # the scores are the logits
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr_schedule(1), eps=1e-5)

    @property
    def scorer(self) -> Scorer:
        """What is kept."""
        networks: Any = self.mlp_extractor
        scorer: Scorer = networks.scorer
        return scorer
