"""What a command's exit code says: the reference lists them."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""An error, told in a sentence on standard error; of ``status``, ``doctor``, ``check``: something is to be seen to."""
USAGE: Final = 2
"""The command line is wrong."""
JOB_FAILED: Final = 3
"""A job that was waited for failed or was cancelled."""
TIERS_MISSED: Final = 4
"""A job that was waited for was done before every tier was reached."""
NOT_EMPTY: Final = 5
"""A node that was waited for was not empty in time."""
INTERRUPTED: Final = 130
"""Ctrl-C."""
