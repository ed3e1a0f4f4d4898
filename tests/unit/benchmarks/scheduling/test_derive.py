from __future__ import annotations

import pytest

from benchmarks.scheduling.derive import derive_from
from tiercel import Direction


def test_tiers_of_an_accuracy_count_from_guessing() -> None:
    curve = [(epoch, 0.9 if epoch > 5 else 0.1 * epoch) for epoch in range(1, 22)]
    slower = [(epoch, 0.9 if epoch > 9 else 0.05 * epoch) for epoch in range(1, 22)]
    found = derive_from([curve, slower], Direction.MAX)
    assert found.targets == (0.804, 0.884)
    # The slowest is there after 10 epochs; a tenth more.
    assert found.max_epochs == 11


def test_tiers_of_a_loss_count_from_the_first_report() -> None:
    curve = [(epoch, 200.0 if epoch == 1 else 100.0) for epoch in range(1, 15)]
    found = derive_from([curve], Direction.MIN)
    assert found.targets == (112.0, 102.0)
    assert found.max_epochs == 3


def test_a_run_that_never_gets_there_asks_for_more() -> None:
    with pytest.raises(ValueError, match="train for longer"):
        derive_from([[(1, 0.5), (2, 0.9)], [(1, 0.5), (2, 0.5)]], Direction.MAX)
