"""What is wrong is said once, until it is something else or has passed."""

from __future__ import annotations

import logging

import pytest

from tiercel.core.complaints import Complaint


def test_it_is_said_when_it_begins_changes_or_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    complaint = Complaint(logging.getLogger("test"), "the disk: %s")
    for problem in ("full", "full", "gone", "gone", "", "", "gone"):
        complaint.note(problem)
    assert [record.getMessage() for record in caplog.records] == ["the disk: full", "the disk: gone", "the disk: gone"]
