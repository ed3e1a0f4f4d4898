from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from tiercel.trainer_agent.trainer.pytorch.models import (
    copy_model,
    copy_weights,
    predict,
    preserved_random_state,
    random_state,
    restore_random_state,
)
from tiercel.trainer_agent.trainer.signature import Signature


class Remembering(nn.Module):
    """Keeps a result that hangs in a graph, as scripts with an auxiliary loss do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.last: torch.Tensor | None = None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.last = self.layer(rows)
        return self.last


def test_predicting_keeps_the_mode_of_every_module_and_the_gradients() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    model.train()
    model[2].eval()
    statistics = copy_weights(model)
    signature = Signature.from_example(torch.ones(1, 3))
    first = predict(model, signature, (np.ones((4, 3)),))
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert np.array_equal(first, predict(model, signature, (np.ones((4, 3)),)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, statistics[name]) for name, value in model.state_dict().items())


def test_several_outputs_are_a_tuple() -> None:
    class Two(nn.Module):
        def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return rows + 1, rows + 2

    answer = predict(Two(), Signature.from_example(torch.ones(1, 3)), (np.zeros((2, 3)),))
    assert isinstance(answer, tuple)
    assert [float(array.mean()) for array in answer] == [1.0, 2.0]


def test_copied_weights_do_not_follow_the_training() -> None:
    model = nn.Linear(3, 2)
    weights = copy_weights(model)
    before = weights["weight"].clone()
    with torch.no_grad():
        model.weight += 1
    assert torch.equal(weights["weight"], before)


def test_a_copied_model_has_the_given_weights_and_leaves_the_original_alone() -> None:
    model = Remembering()
    weights = copy_weights(model)
    with torch.no_grad():
        model.layer.weight += 1
    model(torch.ones(1, 3)).sum().backward()
    last, gradient = model.last, model.layer.weight.grad
    duplicate = copy_model(model, weights)
    assert isinstance(duplicate, Remembering)
    assert torch.equal(duplicate.layer.weight, weights["layer.weight"])
    assert not duplicate.training
    duplicate(torch.zeros(2, 3))
    assert model.last is last
    assert model.layer.weight.grad is gradient
    assert model.training


def test_a_copy_takes_no_memory_of_the_device_that_the_model_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(nn.Module):
        """Two names for one parameter, a buffer, and a tensor that is neither."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight
            self.register_buffer("mean", torch.ones(3))
            self.scale = torch.full((3,), 2.0)

    def on_the_device(tensor: torch.Tensor, memo: dict[int, object]) -> torch.Tensor:
        raise AssertionError(f"{tensor.shape} is copied where it is, not to the CPU, with {len(memo)} others")

    model = Tied()
    weights = copy_weights(model)
    monkeypatch.setattr(torch.Tensor, "__deepcopy__", on_the_device)
    monkeypatch.setattr(nn.Parameter, "__deepcopy__", on_the_device)
    duplicate = copy_model(model, weights)
    assert isinstance(duplicate, Tied)
    assert duplicate.second.weight is duplicate.first.weight
    for copied, original in ((duplicate.scale, model.scale), (duplicate.first.weight, model.first.weight)):
        assert torch.equal(copied, original)
        assert copied.data_ptr() != original.data_ptr()


def test_a_model_wrapped_for_several_devices_is_unwrapped() -> None:
    inner = nn.Linear(3, 2)
    model = nn.DataParallel(inner)
    duplicate = copy_model(model, copy_weights(model))
    assert isinstance(duplicate, nn.Linear)
    assert torch.equal(duplicate.weight, inner.weight)


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_random_numbers_go_on_as_if_nothing_had_drawn_any() -> None:
    with preserved_random_state():
        expected = draw()
    with preserved_random_state():
        draw()
    assert draw() == expected


def test_a_random_state_survives_a_file(tmp_path: object) -> None:
    state = random_state()
    expected = draw()
    file = f"{tmp_path}/state.pt"
    torch.save(state, file)
    restore_random_state(torch.load(file, weights_only=True))
    assert draw() == expected
