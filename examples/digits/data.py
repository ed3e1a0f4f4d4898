"""The digits that come with scikit-learn: 1,797 pictures of 8 by 8 points."""

import numpy as np
from sklearn.datasets import load_digits


def load(held_out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures and labels to train on, then pictures and labels to measure with."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    return x[held_out:], y[held_out:], x[:held_out], y[:held_out]
