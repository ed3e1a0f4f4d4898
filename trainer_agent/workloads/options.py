"""Command line of the shipped workloads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How to train."""

    epochs: int  # passes over the training data at most
    seed: int  # of weights and order; the same seed gives the same curve
    learning_rate: float  # of the optimizer
    batch_size: int  # rows a step
    width: int  # size of the hidden layers, in units or channels
    reports_per_epoch: int  # evenly spread over the epoch


def parse_options(arguments: Sequence[str] | None, defaults: Options, *, description: str) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=_positive, default=defaults.epochs, help="passes over the data at most")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="the same seed gives the same curve")
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate, help="of the optimizer")
    parser.add_argument("--batch-size", type=_positive, default=defaults.batch_size, help="rows a step")
    parser.add_argument("--width", type=_positive, default=defaults.width, help="units or channels of hidden layers")
    parser.add_argument(
        "--reports-per-epoch", type=_positive, default=defaults.reports_per_epoch, help="evenly spread over the epoch"
    )
    return Options(**vars(parser.parse_args(arguments)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = f"{text} is not a positive number"
        raise argparse.ArgumentTypeError(message)
    return number
