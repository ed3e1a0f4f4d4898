"""What git says of a folder, where there is git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SECONDS = 2.0


def git_state(folder: Path) -> tuple[str, bool]:
    """The commit that is checked out, and whether files of the folder differ from it; empty where nobody knows.

    Args:
        folder: A folder, in a repository or not.
    """
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--", "."]
    # A status may write an index, and hooks of a stranger's repository may run programs: neither is asked for.
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        said = subprocess.run(
            [*command[:1], "-c", "core.fsmonitor=false", *command[1:]],
            capture_output=True, timeout=SECONDS, check=True, env=environment,
        ).stdout.decode(errors="replace").splitlines()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "", False
    commit = next((line.split()[-1] for line in said if line.startswith("# branch.oid ")), "")
    if not commit or commit == "(initial)":
        return "", False
    return commit, any(not line.startswith("#") for line in said)
