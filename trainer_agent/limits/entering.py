"""A command that enters its confines before anything else of it runs, so that no child of it can be left outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ENDED_FIRST: Final = 800
"""Of a run, to the kernel that is out of memory for the whole machine: before anybody who has asked for nothing."""

NAME: Final = "tiercel-run"
"""What a command that has not entered yet is called."""

_ENTER: Final = (
    '[ "$1" = 0 ] || echo "$1" 2>/dev/null > /proc/$$/oom_score_adj; '
    'TIERCEL_LEFT=$2; shift 2; while [ "$TIERCEL_LEFT" -gt 0 ]; do echo $$ > "$1" || exit 126; shift; '
    'TIERCEL_LEFT=$((TIERCEL_LEFT-1)); done; exec "$@"'
)


def entering(files: Sequence[Path], command: Sequence[str], *, ended_first: int = 0) -> list[str]:
    """The command that writes its own pid to files and then becomes another one.

    Args:
        files: Of control groups.
        command: What it becomes, with the same pid.
        ended_first: How much earlier than others the kernel ends it when memory runs out, up to 1000.
    """
    names = [str(file) for file in files]
    return ["/bin/sh", "-c", _ENTER, NAME, str(ended_first), str(len(names)), *names, *command]
