"""Writes down which installed packages a script has imported, for the templates that later runs are forked from."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

_FILE = "imports.json"
# A package and what it says of itself: deeper modules come with these, or are not worth a list without end.
_MOST_DOTS = 1
_MOST_NAMES = 512
# Of the library that a script cannot do without, all of it.
_OURS = "tiercel"


def write_imports(run_directory: Path, cpu_seconds: float) -> None:
    """Write what this process has imported by now into the run's folder; where that does not go, nothing happens."""
    with contextlib.suppress(OSError):
        # In place: in a container nothing can be made there, and the file is the run's. Half of one is read as none.
        (run_directory / _FILE).write_text(json.dumps({"names": imported(), "cpu_seconds": cpu_seconds}))


def imported() -> list[str]:
    """Modules of installed packages that this process has, in the order of their import."""
    names = [name for name in list(sys.modules) if _is_worth_it(name)]
    installed = {top for top in {name.partition(".")[0] for name in names} if _is_installed(top)}
    return [name for name in names if name.partition(".")[0] in installed][:_MOST_NAMES]


def _is_worth_it(name: str) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top.startswith("_"):
        return False
    return name.count(".") <= _MOST_DOTS or top == _OURS


def _is_installed(top: str) -> bool:
    """Whether a package lies where packages are installed: what lies elsewhere may be edited between runs."""
    if top == _OURS:
        return True
    found = getattr(sys.modules.get(top), "__spec__", None)
    origin = getattr(found, "origin", None) or ""
    return any(part in {"site-packages", "dist-packages"} for part in Path(origin).parts)
