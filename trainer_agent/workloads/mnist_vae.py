"""A variational autoencoder of MNIST digits. Metric: loss, smaller is better.

Served: images (28, 28) to a reconstruction (28, 28) and the mean and log-variance (latent,) of the image's code.
The loss is the negative evidence lower bound in nats an image (Kingma and Welling, Auto-Encoding Variational Bayes,
2013), measured without sampling: at the mean of the code, so that measuring twice gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tiercel.trainer import Predict
from tiercel.trainer_agent.workloads.data import load_mnist
from tiercel.trainer_agent.workloads.loop import train
from tiercel.trainer_agent.workloads.options import Options, parse_options

DEFAULTS = Options(epochs=100, seed=0, learning_rate=0.0005, batch_size=64, width=400, reports_per_epoch=1)
LATENT_UNITS = 20
# Keeps the logarithm of a reconstructed pixel finite.
SMALLEST_PROBABILITY = 1e-6


class Autoencoder(nn.Module):
    """An image to a normal distribution over codes, and a code to an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 2 * LATENT_UNITS))
        self.decoder = nn.Sequential(
            nn.Linear(LATENT_UNITS, width), nn.ReLU(), nn.Linear(width, 784), nn.Sigmoid(), nn.Unflatten(1, (28, 28))
        )

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Reconstructions and codes; the code is drawn at random in training, and its mean when serving."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return {"reconstruction": self.decoder(code), "mean": mean, "log_variance": log_variance}


def negative_evidence(outputs: Sequence[torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """The loss in nats an image.

    Args:
        outputs: Reconstructions, means and log-variances.
        images: What was to be reconstructed.
    """
    reconstruction, mean, log_variance = outputs
    probabilities = reconstruction.clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    pixels = nn.functional.binary_cross_entropy(probabilities, images, reduction="sum")
    codes = -0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
    return (pixels + codes) / len(images)


def loss(images: npt.NDArray[np.float32]) -> Callable[[Predict], float]:
    """A measurement: the loss on these images."""

    def evaluate(predict: Predict) -> float:
        outputs = [torch.from_numpy(array) for array in predict(images)]
        return float(negative_evidence(outputs, torch.from_numpy(images)))

    return evaluate


def main(arguments: Sequence[str] | None = None) -> None:
    """Train it."""
    options = parse_options(arguments, DEFAULTS, description=(__doc__ or "").splitlines()[0])
    torch.manual_seed(options.seed)
    data, model = load_mnist(), Autoencoder(options.width)
    images = torch.from_numpy(data.x_train)
    train(
        model,
        torch.optim.Adam(model.parameters(), lr=options.learning_rate),
        (images, images),
        lambda x, wanted: negative_evidence(list(model(x).values()), wanted),
        loss(data.x_test),
        metric="loss",
        example_input=data.x_test[:1],
        options=options,
    )


if __name__ == "__main__":
    main()
