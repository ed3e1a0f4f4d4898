"""A few tests that failed beside others run once more, alone, and are named: what passes then depends on neighbours.

A race under load is a defect, of the test or of the product, and stays one: ``make test`` says which test has it. It
says nothing about the change at hand, and one in eight thousand must not refuse it. More than a few are no race.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
AT_MOST: Final = 8
"""More failed tests than these are not run again. A machine that stands still for minutes fails what runs just then: a
test, and perhaps its teardown, of each of some workers."""

WAIT_SECONDS: Final = 600.0
"""For one test, which has its own time limit within."""


def failed_of(cache: Path) -> Path:
    """Where pytest writes which tests failed, in its cache; :mod:`testing.suite` removes it first."""
    return cache / "v" / "cache" / "lastfailed"


def run_again(names: Sequence[str], root: Path) -> list[str]:
    """Run each test in a process of its own, with nothing beside it.

    Returns:
        Those that failed again.
    """
    command = [sys.executable, "-m", "pytest", "-q"]
    return [name for name in names if subprocess.run([*command, name], cwd=root, timeout=WAIT_SECONDS).returncode]


def main(caches: Sequence[Path], root: Path = ROOT) -> int:
    """Run again what the last runs of pytest left in their caches as failed.

    Returns:
        The exit status: 0 only if each of a few tests passed alone.
    """
    found = [failed_of(cache) for cache in caches]
    names = [name for path in found if path.exists() for name in json.loads(path.read_text())]
    if not 0 < len(names) <= AT_MOST:
        return 1
    failed = run_again(names, root)
    for name in names:
        how = "failed again, alone" if name in failed else "FAILED BESIDE OTHERS, passed alone: a race to be mended"
        sys.stdout.write(f"{name}: {how}\n")
    return 1 if failed else 0
