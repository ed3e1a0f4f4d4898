"""Which exits another try may help against."""

from __future__ import annotations

import pytest

from tiercel.core.exit_codes import is_retried


@pytest.mark.parametrize(
    ("exit_code", "retried", "expected"),
    [
        (0, (), False),
        (1, (), True),
        (-9, (), True),
        (75, (75, 137), True),
        (-9, (75, 137), True),
        (137, (75, 137), True),
        (9, (75, 137), False),
        (1, (75, 137), False),
        (-15, (75, 137), False),
    ],
)
def test_an_exit(exit_code: int, retried: tuple[int, ...], expected: bool) -> None:
    assert is_retried(exit_code, retried) is expected
