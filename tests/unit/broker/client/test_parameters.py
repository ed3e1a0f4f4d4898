"""What jobs are told apart by."""

from __future__ import annotations

from typing import Any

import pytest

from tiercel import Direction, JobSpec, Tier
from tiercel.broker.client.parameters import parameters_of


def spec(**changes: Any) -> JobSpec:
    return JobSpec("a", "a", "accuracy", Direction.MAX, (Tier(0.9),), **changes)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--lr", "0.1", "--layers=2"), {"lr": "0.1", "layers": "2"}),
        (("--lr", "-0.1", "--wide", "--lr", "1"), {"lr": "1", "wide": "true"}),
        (("train", "--a=b=c", "-x", "--", "y"), {"argument_1": "train", "a": "b=c", "x": "--", "argument_5": "y"}),
        (("--empty=",), {"empty": ""}),
        ((), {}),
    ],
)
def test_options_are_parameters_by_name_and_others_by_place(
    arguments: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert parameters_of(spec(arguments=arguments)) == expected


@pytest.mark.parametrize("program", [("python", "train.py"), ("/usr/bin/python3.12", "-m", "train"), ("./train",)])
def test_the_program_of_a_command_line_is_no_parameter(program: tuple[str, ...]) -> None:
    found = parameters_of(spec(command=(*program, "--lr", "1"), env={"SEED": "2"}))
    assert found == {"lr": "1", "env.SEED": "2"}
