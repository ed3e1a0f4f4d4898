from __future__ import annotations

import io
import math
import os

import numpy as np
import pytest
import torch

from tiercel.trainer_agent.trainer.reporting import as_numbers, epoch_of, report_line, say


def test_numbers_of_every_make_become_floats() -> None:
    numbers = as_numbers({"a": 1, "b": np.float32(0.5), "c": torch.tensor(0.25), "d": float("nan")})
    assert [type(value) for value in numbers.values()] == [float] * 4
    assert numbers["b"] == 0.5
    assert math.isnan(numbers["d"])


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(TypeError, match="accuracy is a list"):
        as_numbers({"accuracy": [0.5]})


def test_an_empty_report_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one metric"):
        as_numbers({})


def test_a_report_is_one_plain_line() -> None:
    assert report_line(3, {"accuracy": 0.93125, "loss": 1.0}) == "epoch 3  accuracy=0.93125  loss=1"


@pytest.mark.parametrize(("told", "epoch"), [(5.0, 5), (0.0, 0), (2.5, 4), (-1.0, 4), (math.nan, 4), (1e12, 4)])
def test_an_epoch_that_a_script_tells_is_a_whole_number(told: float, epoch: int) -> None:
    assert epoch_of({"epoch": told, "loss": 1.0}, before=4) == epoch


def test_a_script_that_closed_its_output_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    say("heard")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", closefd=False) as nobody_listens:
        say("to nobody", nobody_listens)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # what is in the buffer still has to go somewhere
    os.close(writing)
    closed = io.StringIO()
    closed.close()
    say("too late", closed)
    assert capsys.readouterr().out == "heard\n"
