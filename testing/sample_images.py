"""Real images that the shipped workloads never train on, and how right an endpoint's answer about one is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiercel.trainer_agent.workloads.data import Images, load_digits, load_mnist

Outputs = Mapping[str, NDArray[np.float64]]
"""The rows of an answer, flat, by the output's name."""

Score = Callable[[int, Outputs], float]
"""From the number of an image and the answer about it to how right that is, in the terms of the workload's metric."""

# Classes come in order in the files; mixed, a few answers tell about all of them.
ORDER_SEED = 7
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True, slots=True)
class Samples:
    """Images to ask about."""

    images: NDArray[np.float32]  # shape (n, height, width), float32
    score: Score  # How right an answer is. Its mean over all images is the workload's metric.


def load_samples(kind: str) -> Samples:
    """The samples of a kind of endpoint.

    Args:
        kind: ``digits`` or ``mnist`` for classifiers, ``mnist-autoencoder`` for a variational autoencoder.

    Raises:
        ValueError: There is no such kind.
    """
    match kind:
        case "digits":
            return classifier_samples(load_digits())
        case "mnist":
            return classifier_samples(load_mnist())
        case "mnist-autoencoder":
            return autoencoder_samples(load_mnist())
        case _:
            raise ValueError(f"there are no test images of kind {kind!r}; use digits, mnist or mnist-autoencoder")


def classifier_samples(data: Images) -> Samples:
    """Test images; an answer scores 1 when its highest class is the right one, else 0."""
    order = _order(len(data.x_test))
    classes = data.y_test[order]

    def score(number: int, outputs: Outputs) -> float:
        (scores,) = outputs.values()
        return float(scores.argmax() == classes[number])

    return Samples(data.x_test[order], score)


def autoencoder_samples(data: Images) -> Samples:
    """Test images; an answer scores the negative evidence lower bound in nats: smaller is better."""
    images = data.x_test[_order(len(data.x_test))]
    rows = images.reshape(len(images), -1).astype(np.float64)

    def score(number: int, outputs: Outputs) -> float:
        wanted, mean, log_variance = rows[number], outputs["mean"], outputs["log_variance"]
        drawn = outputs["reconstruction"].clip(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        pixels = -(wanted * np.log(drawn) + (1 - wanted) * np.log1p(-drawn)).sum()
        code = -0.5 * (1 + log_variance - mean**2 - np.exp(log_variance)).sum()
        return float(pixels + code)

    return Samples(images, score)


def _order(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(ORDER_SEED).permutation(count)
