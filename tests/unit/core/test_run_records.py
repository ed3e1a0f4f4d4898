"""Which jobs train the same thing."""

from __future__ import annotations

from typing import Any

import pytest

from testing.jobs import make_spec
from tiercel.core.jobs import Direction, Resources, Script, Tier
from tiercel.core.run_records import workload_of


def fingerprint(tenant: str = "alice", **changes: Any) -> str:
    return workload_of(tenant, make_spec(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "again", "endpoint": "elsewhere"},
        {"tiers": (Tier(0.5),)},
        {"max_epochs": 3, "resources": Resources(2.0)},
    ],
)
def test_the_same_program_is_the_same_workload(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) == fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "bob"},
        {"module": "package.other"},
        {"module": "", "script": Script("train.py", b"x")},
        {"image": "python:3"},
        {"arguments": ("--epochs", "3")},
        {"metric": "loss"},
        {"direction": Direction.MIN},
    ],
)
def test_another_program_is_another_workload(changes: dict[str, Any]) -> None:
    assert fingerprint(**changes) != fingerprint()


def test_a_script_counts_by_its_content_alone() -> None:
    first, renamed, edited = (Script("a.py", b"x"), Script("b.py", b"x"), Script("a.py", b"y"))
    assert fingerprint(module="", script=first) == fingerprint(module="", script=renamed)
    assert fingerprint(module="", script=first) != fingerprint(module="", script=edited)


@pytest.mark.parametrize("seed", [("--seed", "3"), ("--seed=4",), ("--random-state", "9"), ("-seed", "1")])
def test_a_seed_does_not_count(seed: tuple[str, ...]) -> None:
    assert fingerprint(arguments=("--rate", "0.1", *seed, "--deep")) == fingerprint(
        arguments=("--rate", "0.1", "--deep")
    )


def test_arguments_do_not_run_together() -> None:
    assert fingerprint(arguments=("a", "b")) != fingerprint(arguments=("ab",))
