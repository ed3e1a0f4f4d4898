"""What tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
from click.testing import Result

from tiercel.broker.cli.app import app
from tiercel.broker.cli.commands import COMMANDS

Tiercel = Callable[..., Result]
"""Runs a command with the arguments given; ``input`` is what it reads."""


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a line begins with, and what is left of the line; ``words`` are those behind ``tiercel``."""
    command: click.Command = app
    rest = list(words)
    while isinstance(command, click.Group) and rest and rest[0] in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), rest.pop(0))
        assert found is not None
        command = found
    return command, rest


def understood(words: list[str]) -> bool:
    """Whether a command takes these options and arguments, which is found out without running it."""
    command, rest = command_of(words)
    command.make_context("tiercel", rest)
    return True


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and group that there is, by its words, ``tiercel`` first."""
    yield "tiercel", app
    for name in COMMANDS:
        command, rest = command_of(name.split())
        assert not rest, name
        yield f"tiercel {name}", command
