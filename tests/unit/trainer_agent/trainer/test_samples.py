from __future__ import annotations

import numpy as np
import torch

from tiercel.trainer_agent.trainer.samples import KEPT_ROWS, REFERENCE_ROWS, Samples
from tiercel.trainer_agent.trainer.signature import Signature


def sizes(samples: Samples) -> list[int]:
    return [batch[0].shape[0] for batch in samples.batches()]


def test_without_real_rows_the_example_is_varied() -> None:
    samples = Samples(Signature.from_example((torch.ones(2, 3), torch.ones(2, 4, dtype=torch.int64))))
    numbers, indices = samples.reference()
    assert numbers.shape == (REFERENCE_ROWS, 3)
    assert len(np.unique(numbers)) == REFERENCE_ROWS
    assert np.array_equal(indices, np.ones((REFERENCE_ROWS, 4), np.int64))
    assert sizes(samples) == [2, 1, REFERENCE_ROWS]
    assert not samples.has_rows


def test_the_first_rows_asked_about_are_kept_spread_over_all_of_them() -> None:
    samples = Samples(Signature.from_example(torch.ones(1, 1)))
    rows = np.arange(1000, dtype=np.float32).reshape(-1, 1)
    samples.remember((rows,))
    samples.remember((rows + 5000,))
    assert samples.has_rows
    assert sizes(samples) == [1, 1, REFERENCE_ROWS, KEPT_ROWS]
    (reference,) = samples.reference()
    assert float(reference[0, 0]) == 0
    assert float(reference[-1, 0]) == 999


def test_few_rows_are_repeated_for_the_reference() -> None:
    samples = Samples(Signature.from_example(torch.ones(1, 1)))
    samples.remember((np.array([[3.0], [4.0]]),))
    assert sizes(samples) == [1, 1, REFERENCE_ROWS, 2]


def test_kept_rows_do_not_follow_the_script() -> None:
    samples = Samples(Signature.from_example(torch.ones(1, 1)))
    rows = np.ones((10, 1), dtype=np.float32)
    samples.remember((rows,))
    rows += 1
    assert float(samples.reference()[0].max()) == 1


def test_rows_that_do_not_belong_together_are_not_kept() -> None:
    samples = Samples(Signature.from_example((torch.ones(1, 1), torch.ones(1, 1))))
    samples.remember((np.ones((3, 1)), np.ones((4, 1))))
    assert not samples.has_rows
