"""How a shell is made to complete ``tiercel``'s words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tiercel.broker.cli.session import fail

if TYPE_CHECKING:
    import click

_VARIABLE = "_TIERCEL_COMPLETE"
_PLACES: Final = {
    # Looked up by name when a word is first completed: https://github.com/scop/bash-completion
    "bash": ".local/share/bash-completion/completions/tiercel",
    "zsh": ".zfunc/_tiercel",
    "fish": ".config/fish/completions/tiercel.fish",
}
_ZSH_LINE = "fpath+=~/.zfunc; autoload -Uz compinit; compinit"


def completion_script(program: click.Command) -> str:
    """What the shell has to read."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(_shell())
    if kind is None:  # click knows all of _PLACES
        fail("The shell is not known.")
    completion = kind(program, {}, "tiercel", _VARIABLE)
    return completion.source_template % completion.source_vars()


def install_completion(program: click.Command) -> Path:
    """Put that where the shell finds it; returns the file."""
    shell = _shell()
    place = Path.home() / _PLACES[shell]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{completion_script(program)}\n", encoding="utf-8")
        if shell == "zsh":
            _add_line(Path.home() / ".zshrc", _ZSH_LINE)
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{place} cannot be written ({error}); put there what 'tiercel --show-completion' prints.")
    return place


def _shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _PLACES:
        fail(f"The variable SHELL names {name or 'no shell'}; completion is for {', '.join(_PLACES)}.")
    return name


def _add_line(file: Path, line: str) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in before.splitlines():
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{line}\n")
