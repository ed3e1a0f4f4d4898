from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tiercel.trainer_agent.workloads import data


@pytest.mark.parametrize(("load", "size", "rows"), [(data.load_digits, 8, 1797), (data.load_mnist, 28, 5000)])
def test_the_data_is_real_split_by_class_and_scaled(load: Callable[[], data.Images], size: int, rows: int) -> None:
    images = load()
    assert images.x_train.shape[1:] == images.x_test.shape[1:] == (size, size)
    assert len(images.x_train) + len(images.x_test) == rows
    assert len(images.x_train) == len(images.y_train)
    assert images.x_train.dtype == np.float32
    assert images.y_train.dtype == np.int64
    assert (images.x_train.min(), images.x_train.max()) == (0, 1)
    share = np.bincount(images.y_test) / (np.bincount(images.y_test) + np.bincount(images.y_train))
    assert share.shape == (10,)
    assert np.allclose(share, 0.2, atol=0.01)


def test_no_test_row_is_trained_on() -> None:
    images = data.load_mnist()
    trained = {row.tobytes() for row in images.x_train}
    assert not [row for row in images.x_test if row.tobytes() in trained]


def test_a_missing_package_is_named_with_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match=r"package no_such_package is not here; install .* extra 'train'"):
        data._read_table("no_such_package", "data.csv.gz")
