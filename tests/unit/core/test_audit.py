"""The chain of the audit log: what is changed, taken away, added or exchanged is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.core.audit import BEGUN, DONE, UNKNOWN, AuditRow, AuditStart, ChainCheck, calls_of, digest_of


def chain(length: int, start: AuditStart | None = None) -> list[AuditRow]:
    rows: list[AuditRow] = []
    number, previous = (start.number, start.sha256) if start else (0, "")
    for _ in range(length):
        number += 1
        rows.append(
            AuditRow(number, 1e9 + number / 7, 0, "t1", "alice", "viewer", "A.B", f"ö{number}", DONE, "::1", previous)
        )
        previous = digest_of(rows[-1])
    return rows


def check(rows: list[AuditRow], start: AuditStart | None = None) -> ChainCheck:
    found = ChainCheck(start or AuditStart())
    for row in rows:
        found.add(row)
    return found


def test_a_chain_fits_and_goes_on_behind_what_is_gone() -> None:
    rows = chain(9)
    assert (check(rows).problem, check(rows).rows, check(rows).sha256) == ("", 9, digest_of(rows[-1]))
    start = AuditStart(rows[3].number, rows[3].at, digest_of(rows[3]))
    assert (check(rows[4:], start).problem, check(rows[4:], start).rows) == ("", 5)
    assert check(rows[4:]).problem


@pytest.mark.parametrize("field", ["at", "call", "caller", "tenant", "role", "method", "object", "outcome", "peer"])
def test_a_row_in_which_anything_is_changed_is_found(field: str) -> None:
    rows = chain(5)
    value = 7 if isinstance(getattr(rows[2], field), int | float) else "other"
    rows[2] = replace(rows[2], **{field: value})  # type: ignore[arg-type]
    assert check(rows).problem == "row 4 does not go with what stands before it: one of them was changed"


def test_rows_that_are_taken_away_added_or_exchanged_are_found() -> None:
    rows = chain(5)
    assert "row 3 is missing" in check(rows[:2] + rows[3:]).problem
    assert check([rows[0], rows[0], *rows[1:]]).problem
    assert check([rows[1], rows[0], *rows[2:]]).problem
    assert check([replace(row, number=row.number - 2) for row in rows[2:]]).problem
    # The newest can be cut off unseen: their hash has to be noted elsewhere.
    assert not check(rows[:4]).problem
    assert check(rows[:4]).sha256 != check(rows).sha256


def test_a_call_is_one_row_and_one_that_has_no_end_is_unknown() -> None:
    first, second, third, refused = chain(4)
    rows = [replace(first, outcome=BEGUN), replace(second, outcome=BEGUN), replace(third, call=1), refused]
    assert [(call.number, call.outcome) for call in calls_of(rows)] == [(3, DONE), (4, DONE), (2, UNKNOWN)]
