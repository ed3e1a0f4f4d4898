"""Exit codes of training scripts, and which of them another try may help against."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def is_retried(exit_code: int, retried: Collection[int]) -> bool:
    """Whether a script that ended so is started again while it has retries left.

    Args:
        exit_code: As a process has it: ``-N`` when signal N ended it.
        retried: Exit codes as a shell has them: 128 + N when signal N ended it; empty for every one but 0.
    """
    told = exit_code if exit_code >= 0 else 128 - exit_code
    return told != 0 and (not retried or told in retried)
