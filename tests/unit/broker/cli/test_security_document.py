"""The commands of docs/security.md are ones that there are, with options that there are."""

from __future__ import annotations

import re
from pathlib import Path

from testing.command_line import command_lines, command_of, understood

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "security.md"


def test_every_command_line_of_the_document_is_understood() -> None:
    lines = command_lines(DOCUMENT)
    assert len(lines) >= 20
    assert all(map(understood, lines))


def test_every_option_that_the_document_names_is_there() -> None:
    told = (["up"], ["join"], ["node", "token"], ["token", "create"], ["audit"], ["authority", "finish"], ["login"])
    commands = [command_of(words)[0] for words in told]
    known = {name for each in commands for one in each.params for name in one.opts + one.secondary_opts}
    assert set(re.findall(r"`(--[a-z-]+)", DOCUMENT.read_text())) <= known
