"""The record of who changed what and who was refused: a chain, in which each row holds the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BEGUN, DONE, COUNTED, UNKNOWN = "begun", "done", "counted", "unknown"
NOTHING_BEFORE = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One thing that happened."""

    number: int  # counts up from 1
    at: float  # seconds since the Unix epoch
    call: int  # the number of the row by which the call began that this row ends; 0 for all others
    caller: str  # The id of the token, the file that it stands in, or the node; empty for nobody known. No secret.
    tenant: str  # whose things the caller may touch; empty for none
    role: str  # what the caller is; empty for nobody known
    method: str  # ``Service.Method``
    object: str  # what the call names
    # ``begun``; then ``done`` or the code of an error. ``counted``: refusals that have no row of their own.
    outcome: str
    peer: str  # from where the call came
    previous: str = NOTHING_BEFORE  # SHA-256 of the row before, hexadecimal; empty for the first

    def to_json(self) -> dict[str, int | str]:
        """What people are shown of it; the keys are stable."""
        return {
            "number": self.number,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(),
            "caller": self.caller,
            "tenant": self.tenant,
            "role": self.role,
            "method": self.method,
            "object": self.object,
            "outcome": self.outcome,
            "peer": self.peer,
        }


@dataclass(frozen=True, slots=True)
class AuditStart:
    """Where the rows begin that are kept: those before are gone, but for what is said here."""

    number: int = 0  # of the last row that is gone; 0 if none is
    until: float = 0.0  # when that was, seconds since the Unix epoch
    sha256: str = NOTHING_BEFORE  # its hash


def digest_of(row: AuditRow) -> str:
    """SHA-256 of a row with all that it holds, the hash of the row before too."""
    return hashlib.sha256(json.dumps(astuple(row), separators=(",", ":")).encode()).hexdigest()


class ChainCheck:
    """Goes along the rows, and stops at the first that does not belong there.

    Attributes:
        problem: What is wrong, in a sentence; empty while nothing is.
        rows: How many fit.
        sha256: The hash of the last that did.
    """

    def __init__(self, start: AuditStart) -> None:
        self.problem = ""
        self.rows = 0
        self.sha256 = start.sha256
        self._number = start.number

    def add(self, row: AuditRow) -> None:
        """Look at the next row."""
        if self.problem:
            return
        if row.number != self._number + 1:
            self.problem = f"row {self._number + 1} is missing: row {row.number} comes after row {self._number}"
        elif row.previous != self.sha256:
            self.problem = f"row {row.number} does not go with what stands before it: one of them was changed"
        else:
            self.rows, self._number, self.sha256 = self.rows + 1, row.number, digest_of(row)


def calls_of(rows: Iterable[AuditRow]) -> Iterator[AuditRow]:
    """One row for each call, where it ended; what has no end is unknown: it goes on, or the broker died."""
    begun: dict[int, AuditRow] = {}
    for row in rows:
        if row.outcome == BEGUN:
            begun[row.number] = row
            continue
        begun.pop(row.call, None)
        yield row
    for row in begun.values():
        yield replace(row, outcome=UNKNOWN)
