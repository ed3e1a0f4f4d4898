"""The kinds of work that schedules draw from: the shipped workloads with arguments, tiers and a budget.

Tier 1 is at 88 % and tier 2 at 98 % of the gain from the start (a guess at random for classifiers, the first report
for the autoencoders) to the mean of the last seventh of a long run, averaged over training seeds 0 to 2 and rounded;
``python -m benchmarks.scheduling derive`` works the targets out again. The budget is a tenth more than the slowest
seed needs for tier 2, so that work is left when all tiers are delivered. Everything runs in 1 to 15 CPU seconds,
about 2 of which are start-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tiercel import Direction, JobSpec, Resources, Shipping, Tier

WORKLOADS = "tiercel.trainer_agent.workloads"
MEMORY_BYTES = 1024**3
GAIN_FRACTIONS = (0.88, 0.98)
"""Where tiers 1 and 2 are between the start and the plateau."""

BUDGET_FACTOR = 1.1
"""The budget, as a multiple of the epochs that the slowest seed needs for the last tier."""

GUESSING = 0.1
"""Accuracy of a guess among ten digits."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Something to train."""

    name: str  # unique among kinds
    workload: str  # module of the shipped workloads
    arguments: tuple[str, ...]  # its command line without the seed and the number of epochs
    targets: tuple[float, ...]  # of its tiers, easiest first
    max_epochs: int  # its budget; it trains on after its last tier
    long_epochs: int  # epochs of the long run that the targets were derived from
    images: str = "mnist"  # kind of test images for its endpoint, see :func:`testing.sample_images.load_samples`
    metric: str = "accuracy"  # name of its metric
    direction: Direction = Direction.MAX  # whether a larger or a smaller metric is better

    def spec(self, name: str, training_seed: int, runtime: str, *, objective_seconds: float | None = None) -> JobSpec:
        """What is submitted.

        Args:
            name: Of the job and of the endpoint that it feeds.
            training_seed: Of weights and order of the data.
            runtime: ``process`` or ``docker``.
            objective_seconds: Delay wanted from the endpoint (QoE objective), or None.
        """
        return JobSpec(
            name=name,
            endpoint=name,
            metric=self.metric,
            direction=self.direction,
            tiers=tuple(Tier(target) for target in self.targets),
            module=f"{WORKLOADS}.{self.workload}",
            arguments=(*self.arguments, "--epochs", str(self.max_epochs), "--seed", str(training_seed)),
            resources=Resources(cpu_cores=1.0, memory_bytes=MEMORY_BYTES),
            runtime=runtime,
            max_epochs=self.max_epochs,
            continue_after_last_tier=True,
            ship=Shipping(only_tiers=True),
            endpoint_objective_seconds=objective_seconds,
        )


def _vae(*arguments: str, **fields: Any) -> dict[str, Any]:
    about = {"workload": "mnist_vae", "images": "mnist-autoencoder", "metric": "loss", "direction": Direction.MIN}
    return {**about, "arguments": (*arguments, "--reports-per-epoch", "3"), **fields}


_ALL = (
    Kind(
        "mlp-small",
        "digits_mlp",
        ("--width", "128", "--batch-size", "8", "--learning-rate", "0.005"),
        (0.864, 0.951),
        max_epochs=36,
        long_epochs=60,
        images="digits",
    ),
    Kind("mlp-wide", "digits_mlp", (), (0.868, 0.955), max_epochs=36, long_epochs=60, images="digits"),
    Kind("cnn-small", "mnist_cnn", ("--width", "6"), (0.860, 0.946), max_epochs=8, long_epochs=14),
    Kind("cnn-wide", "mnist_cnn", (), (0.862, 0.948), max_epochs=7, long_epochs=11),
    Kind("gru-small", "mnist_gru", ("--width", "24"), (0.848, 0.933), max_epochs=14, long_epochs=30),
    Kind("gru-wide", "mnist_gru", (), (0.859, 0.945), max_epochs=13, long_epochs=20),
    Kind(
        "vae-small",
        **_vae("--width", "200", "--learning-rate", "0.002", targets=(126.0, 113.7), max_epochs=19, long_epochs=20),
    ),
    Kind("vae-wide", **_vae("--learning-rate", "0.001", targets=(130.0, 114.7), max_epochs=15, long_epochs=16)),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""All kinds by name."""
