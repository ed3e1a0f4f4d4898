"""docs/cli.md: the commands and exit codes that it tells of are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

from testing.command_line import command_lines, understood
from tiercel.broker.cli import exit_codes
from tiercel.broker.cli.commands import COMMANDS

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "cli.md"
TEXT = DOCUMENT.read_text()


def test_every_command_is_told_of() -> None:
    groups = re.findall(r"tiercel ((?:\w+ )+)(\w+(?:\|\w+)+)", TEXT)
    told = {f"{group}{name}" for group, names in groups for name in names.split("|")}
    told |= {name for name in COMMANDS if f"tiercel {name}" in TEXT}
    assert {name for name, entry in COMMANDS.items() if entry.home} <= told


def test_every_command_line_is_understood() -> None:
    written = [line for line in command_lines(DOCUMENT) if not {"|", "<"} & set(" ".join(line))]
    plain = [[re.sub(r"[\[\]]", "", word) for word in line] for line in written if "[" not in " ".join(line)]
    assert len(plain) >= 15
    assert all(map(understood, plain))


def test_every_exit_code_is_told_of() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert {0, *codes} == set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)))
