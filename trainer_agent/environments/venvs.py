"""Virtual environments made by hand: no interpreter runs for it, so that one can be made for the Python of an image."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.environments.layers import Interpreter

THIS: Final = Interpreter(
    os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable), platform.python_version()
)
"""The agent's own Python, without an environment around it."""

# What a script is started by: an interpreter or, where its path is too long for the kernel, a shell that starts it.
_STARTED_BY: Final = re.compile(rb"#!(/bin/sh\n'''exec' [^\n]*\n' '''|[^\n]*)\n")


def python_in(venv: Path) -> Path:
    """The interpreter of an environment."""
    return venv / "bin" / "python"


def packages_in(venv: Path, interpreter: Interpreter) -> Path:
    """Where packages of an environment are."""
    return venv / "lib" / f"python{interpreter.series}" / "site-packages"


def make(venv: Path, interpreter: Interpreter) -> None:
    """Make an empty environment.

    Raises:
        OSError: The disk does not take it.
    """
    packages_in(venv, interpreter).mkdir(parents=True)
    (venv / "lib64").symlink_to("lib")  # where some Pythons put what is built for one machine
    (venv / "bin").mkdir()
    _set_interpreter(venv, interpreter)


def move_to(venv: Path, interpreter: Interpreter, place: str) -> None:
    """Turn an environment of the agent's Python into one of another Python that finds it in another place.

    Args:
        venv: The environment, with packages in it.
        interpreter: The other Python.
        place: The path by which programs reach the environment then.

    Raises:
        OSError: The disk does not take it.
    """
    own = os.fsencode(python_in(venv))
    for file in (venv / "bin").iterdir():
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        found = _STARTED_BY.match(content)
        if found is not None and own in found[0]:
            mode = stat.S_IMODE(file.stat().st_mode)
            file.write_bytes(f"#!{place}/bin/python\n".encode() + content[found.end() :])
            file.chmod(mode)
    packages = packages_in(venv, interpreter)
    if interpreter.series != THIS.series:
        if packages.parent.exists():  # no package is as rude as to install there, but one might
            shutil.rmtree(packages.parent)
        packages_in(venv, THIS).parent.rename(packages.parent)
    _set_interpreter(venv, interpreter)


def _set_interpreter(venv: Path, interpreter: Interpreter) -> None:
    for link in ("python", "python3", f"python{THIS.series}", f"python{interpreter.series}"):
        (venv / "bin" / link).unlink(missing_ok=True)
    for link in ("python3", f"python{interpreter.series}"):
        (venv / "bin" / link).symlink_to("python")
    python_in(venv).symlink_to(interpreter.path)
    home = os.path.dirname(interpreter.path)  # noqa: PTH120 - the path may be of another machine
    lines = (f"home = {home}", "include-system-site-packages = false", f"version = {interpreter.version}")
    (venv / "pyvenv.cfg").write_text("".join(f"{line}\n" for line in lines))
