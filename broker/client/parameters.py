"""What jobs are told apart by: the arguments and variables that their specs give to the same script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.core.jobs import JobSpec

_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


def parameters_of(spec: JobSpec) -> dict[str, str]:
    """The parameters of a job by name: options by their own, other arguments by their place, and variables.

    ``--lr 0.1 --layers=2 --wide data`` with ``SEED=1`` is ``lr``, ``layers``, ``wide`` (what follows an option is its
    value) and ``env.SEED``. Of an option that is given twice the last one counts, as it does for argparse.
    """
    found: dict[str, str] = {}
    waiting = ""
    # What a command line begins with is its program, and the same for all.
    for place, word in enumerate(spec.arguments or spec.command[_program_words(spec.command) :], start=1):
        option = _OPTION.fullmatch(word)
        if option is not None:
            name, value = option.groups()
            found[name] = "true" if value is None else value
            waiting = name if value is None else ""
        else:
            found[waiting or f"argument_{place}"] = word
            waiting = ""
    return found | {f"env.{name}": value for name, value in spec.env.items()}


def _program_words(command: Sequence[str]) -> int:
    """How many words of a command line say which program it is: ``python -m NAME``, ``python FILE``, or the first."""
    python = bool(command) and _PYTHON.fullmatch(command[0]) is not None
    return 1 if not python else 3 if command[1:2] == ("-m",) else 2
