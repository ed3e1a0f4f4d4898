"""Documents that name tests name ones that there are."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_fault_that_is_told_of_has_its_tests() -> None:
    text = (REPOSITORY / "docs" / "faults.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (REPOSITORY / path).read_text()]
    assert not missing
    assert [int(number) for number in re.findall(r"^\| (\d+)\. ", text, re.MULTILINE)] == list(range(1, 17))
