"""Which jobs train the same thing."""

from __future__ import annotations

from typing import Any

import pytest

from testing.jobs import make_spec
from tiercel.core.jobs import Direction, Resources, Script, Tier
from tiercel.core.projects import Project
from tiercel.core.run_records import similar_to, workload_of


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
        {"module": "", "command": ("python", "train.py")},
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


def test_commands_are_told_apart() -> None:
    commands = (("python", "a.py"), ("python", "b.py"), ("python", "a.py", "--deep"))
    found = {fingerprint(module="", command=each) for each in commands}
    assert len(found) == len(commands)
    assert fingerprint(module="", command=("python", "a.py", "--seed", "3")) in found


def test_a_project_counts_by_its_content() -> None:
    command: dict[str, Any] = {"module": "", "command": ("python", "train.py")}
    assert fingerprint(**command, project=Project("a" * 64)) != fingerprint(**command, project=Project("b" * 64))
    assert fingerprint(**command, project=Project("a" * 64, commit="c" * 40)) == fingerprint(
        **command, project=Project("a" * 64)
    )


SCRIPT = {"module": "", "script": Script("train.py", b"x"), "arguments": ("--rate", "0.1")}
PROJECT = {"module": "", "command": ("python", "train.py", "--rate", "0.1"), "project": Project("a" * 64)}


def shared(before: dict[str, Any], **changes: Any) -> list[bool]:
    """Which fingerprints a job shares with one that differs from it in something."""
    tenant = changes.pop("of", "alice")
    mine, other = similar_to("alice", make_spec(**before)), similar_to(tenant, make_spec(**(before | changes)))
    return [one == another for one, another in zip(mine, other, strict=True)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"script": Script("train.py", b"y")}, [True, True, True]),
        ({"arguments": ("--rate", "0.1", "--seed", "4")}, [True, True, True]),
        ({"endpoint": "elsewhere"}, [True, True, False]),
        ({"arguments": ("--rate", "0.2")}, [False, True, True]),
        ({"script": Script("other.py", b"x")}, [False, False, True]),
        ({"script": None, "command": ("python", "train.py", "--rate", "0.1")}, [False, False, True]),
        ({"metric": "loss"}, [False, False, False]),
        ({"direction": Direction.MIN}, [False, False, False]),
        ({"of": "bob"}, [False, False, False]),
    ],
)
def test_what_an_edit_leaves_alone(changes: dict[str, Any], expected: list[bool]) -> None:
    assert shared(SCRIPT, **changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"project": Project("b" * 64)}, [True, False, True]),
        ({"project": Project("b" * 64), "endpoint": "elsewhere"}, [False, False, False]),  # another one's train.py
        ({"command": ("python", "train.py", "--rate", "0.2"), "endpoint": "elsewhere"}, [False, True, False]),
    ],
)
def test_what_an_edit_of_a_project_leaves_alone(changes: dict[str, Any], expected: list[bool]) -> None:
    assert shared(PROJECT, **changes) == expected


def test_a_command_is_named_by_its_words_before_the_first_option() -> None:
    def of(*command: str) -> tuple[str, ...]:
        return similar_to("alice", make_spec(module="", command=command))

    assert of("python", "a.py", "--rate", "1")[1] == of("python", "a.py", "--rate", "2")[1]
    assert of("python", "a.py", "--rate", "1")[0] != of("python", "a.py", "--rate", "2")[0]
    assert of("python", "a.py")[1] != of("python", "b.py")[1]
    assert of("-x")[1] == of("-x")[1]
