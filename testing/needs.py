"""What a test needs of its machine: on CI it has to be there, elsewhere the test is skipped where it is not."""

from __future__ import annotations

import os

import pytest


def need(met: object, sentence: str) -> None:
    """Go on with the test only if what it needs is there.

    Args:
        met: Whether it is.
        sentence: What it needs, e.g. ``control groups that may be written``.
    """
    if met:
        return
    if os.environ.get("CI"):
        pytest.fail(f"This test needs {sentence}; on CI that has to be there.")
    pytest.skip(f"it needs {sentence}")
