"""Command lines of jobs: what they start, as far as it can be told without starting it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiercel.core.errors import wrong_field
from tiercel.core.projects import Entry, Kind

_PYTHON = frozenset({"python", "python3"})


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python script or module with its arguments."""

    script: str  # path of a file relative to the working directory, or empty
    module: str  # dotted name, or empty
    arguments: tuple[str, ...]  # what follows


def is_python(word: str) -> bool:
    """Whether the first word of a command means the interpreter that runs have."""
    return word in _PYTHON


def python_program(command: Sequence[str]) -> PythonProgram | None:
    """The Python script or module that a command starts; None for anything else, an interpreter's options included."""
    if len(command) < 2 or not is_python(command[0]):
        return None
    if command[1] == "-m":
        return PythonProgram("", command[2], tuple(command[3:])) if len(command) > 2 else None
    if command[1].startswith(("-", "/")):
        return None
    return PythonProgram(command[1].removeprefix("./"), "", tuple(command[2:]))


def check_command(command: Sequence[str], project: Mapping[str, Entry]) -> None:
    """Check that a command can start something.

    Raises:
        InvalidSpecError: What it starts is not in the project.
    """
    program = python_program(command)
    if program is not None and program.script:
        _require(program.script, project, (Kind.FILE, Kind.PROGRAM, Kind.LINK))
    elif command and "/" in command[0] and not command[0].startswith("/"):
        _require(command[0].removeprefix("./"), project, (Kind.PROGRAM, Kind.LINK))


def _require(path: str, project: Mapping[str, Entry], kinds: Sequence[Kind]) -> None:
    entry = project.get(path)
    if entry is None:
        near = difflib.get_close_matches(path, project, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; give a path relative to the project's folder"
        raise wrong_field("command", f"there is no file {path!r} in the project{hint} (what is ignored is not in it)")
    if entry.kind not in kinds:
        what = "is a folder" if entry.kind is Kind.FOLDER else "may not be executed; make it so by 'chmod +x'"
        raise wrong_field("command", f"{path!r} in the project {what}")
