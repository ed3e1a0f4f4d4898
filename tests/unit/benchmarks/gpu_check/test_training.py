"""What is trained is the same every time, and can be learned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.gpu_check.training import Images, Training, held_out_images
from benchmarks.gpu_check.workloads import Workload

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small a network is not faster on more, and far slower where these wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def accuracy(training: Training) -> float:
    images, classes = held_out_images()
    training.model.eval()
    with torch.no_grad():
        right = training.model(images).argmax(dim=1) == classes
    training.model.train()
    return float(right.float().mean())


def test_it_learns_to_tell_images_apart_that_it_never_saw() -> None:
    training = Training(CPU, Workload(width=4, batch_size=32))
    before = accuracy(training)
    for _ in range(80):
        training.step()
    assert before < 0.25
    assert accuracy(training) > 2 * before


def test_the_same_seed_gives_the_same_rows_and_another_one_others() -> None:
    first, again, other = (Images(CPU, seed).draw(8) for seed in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_repeats_are_one_step_of_the_optimizer_over_more_rows() -> None:
    training = Training(CPU, Workload(width=4, batch_size=8, repeats=3))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    loss = training.step()
    assert 0.5 < float(loss) < 10
    assert any(not torch.equal(*pair) for pair in zip(before, training.model.parameters(), strict=True))
    (state, *_) = training.optimizer.state_dict()["state"].values()
    assert torch.isfinite(state["momentum_buffer"]).all()


def test_a_workload_survives_the_command_line() -> None:
    workload = Workload(width=8, batch_size=32, repeats=3, seed=7)
    assert Workload.of(workload.arguments()) == workload
