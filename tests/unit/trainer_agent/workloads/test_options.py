from __future__ import annotations

import pytest

from tiercel.trainer_agent.workloads.options import Options, parse_options

DEFAULTS = Options(epochs=9, seed=1, learning_rate=0.5, batch_size=8, width=16, reports_per_epoch=2)


def test_what_is_left_out_is_the_workloads_own() -> None:
    assert parse_options([], DEFAULTS, description="") == DEFAULTS
    assert parse_options(["--epochs", "3"], DEFAULTS, description="").epochs == 3


def test_a_number_of_epochs_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--epochs", "0"], DEFAULTS, description="")
    assert "not a positive number" in capsys.readouterr().err
