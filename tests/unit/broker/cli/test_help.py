"""How the help of commands is laid out."""

from __future__ import annotations

import shlex

import click
import pytest

from testing.command_line import all_commands, understood
from tiercel.broker.cli.commands import COMMANDS

WIDTH = 78
ALL = list(all_commands())


def examples_of(command: click.Command) -> list[str]:
    """The command lines that its help ends with."""
    return [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(("name", "command"), ALL)
def test_no_line_breaks_twice_on_80_columns(name: str, command: click.Command) -> None:
    """Lines of the first paragraph are joined, those of others stay as they are written."""
    others = (command.help or "").partition("\n\n")[2]
    assert [line for line in others.splitlines() if len(line) > WIDTH] == [], name
    context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
    assert [line for line in command.get_help(context).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("name", "command"), ALL)
def test_every_help_ends_with_examples_that_are_understood(name: str, command: click.Command) -> None:
    examples = examples_of(command)
    assert examples
    for example in examples:
        words = shlex.split(example.rpartition("| ")[2].partition(" <")[0])
        assert example.count(name) == 1 or name == "tiercel"
        assert understood(words[1:])


def test_every_line_of_the_table_fits_behind_its_name() -> None:
    for entry in COMMANDS.values():
        assert len(entry.help) <= 80 - len("  authority  "), entry.help
