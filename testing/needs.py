"""What a test needs of its machine: on CI it has to be there, elsewhere the test is skipped where it is not."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

SKIPPED: Final = Path(__file__).parents[1] / "build" / "skipped"
"""Why tests of the last ``make test`` were skipped, a line each."""

_OF_PACKAGES: Final = re.compile(r"it needs (.*) \(Debian: ([a-z0-9. -]+)\)$")


def need(met: object, sentence: str, packages: str = "") -> None:
    """Go on with the test only if what it needs is there.

    Args:
        met: Whether it is.
        sentence: What it needs, e.g. ``control groups that may be written``.
        packages: Debian's packages that would bring it, with blanks between; empty where none would.
    """
    if met:
        return
    words = f"it needs {sentence}" + (f" (Debian: {packages})" if packages else "")
    if os.environ.get("CI"):
        pytest.fail(f"This test cannot be skipped on CI: {words}.")
    pytest.skip(words)


def has_ipv6() -> bool:
    """Whether this machine has IPv6 on its loopback interface."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def summary(reasons: Iterable[str]) -> str:
    """One line: which kinds of tests were skipped for want of packages, and the command that installs them.

    Returns:
        Empty where none was skipped for that.
    """
    found = [match.groups() for match in map(_OF_PACKAGES.search, reasons) if match]
    if not found:
        return ""
    kinds = ", ".join(f"{count} that need {kind}" for kind, count in sorted(Counter(kind for kind, _ in found).items()))
    packages = sorted({name for _, names in found for name in names.split()})
    return f"Skipped: {kinds}. To run them: sudo apt-get install -y --no-install-recommends {' '.join(packages)}"


def main() -> None:
    """Print the line for what was skipped since the file was last removed."""
    line = summary(SKIPPED.read_text().splitlines()) if SKIPPED.exists() else ""
    if line:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
