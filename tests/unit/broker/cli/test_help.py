"""How the help of commands is laid out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from tiercel.broker.cli.app import app

WIDTH = 78


def commands(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of those below it, by what is typed."""
    yield name, command.help or ""
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner, f"{name} {inner.name}")


@pytest.mark.parametrize(("name", "text"), list(commands(typer.main.get_command(app), "tiercel")))
def test_no_line_breaks_twice_on_80_columns(name: str, text: str) -> None:
    """Lines of the first paragraph are joined, those of others stay as they are written."""
    others = text.partition("\n\n")[2]
    assert [line for line in others.splitlines() if len(line) > WIDTH] == [], name
