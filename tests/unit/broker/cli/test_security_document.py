"""The commands of docs/security.md are ones that there are, with options that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import typer

from tiercel.broker.cli.app import app

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "security.md").read_text()


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that a line begins with, and what is left of the line."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        words = words[1:]
    return command, words


def test_every_command_line_of_the_document_is_understood() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    texts = [block.replace("\\\n", " ") for block in blocks]
    lines = [shlex.split(line, comments=True) for text in texts for line in text.splitlines()]
    commands = [line[1:] for line in lines if line[:1] == ["tiercel"]]
    assert len(commands) >= 20
    for words in commands:
        command, arguments = command_of(words)
        command.make_context("tiercel", arguments)


def test_every_option_that_the_document_names_is_there() -> None:
    told = (["up"], ["join"], ["node", "token"], ["token", "create"], ["audit"], ["authority", "finish"], ["login"])
    commands = [command_of(words)[0] for words in told]
    known = {name for each in commands for one in each.params for name in one.opts + one.secondary_opts}
    assert set(re.findall(r"`(--[a-z-]+)", TEXT)) <= known
