"""What a trial of a training script finds: written by the library in the script, read by who had it started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CHECK_VARIABLE = "TIERCEL_CHECK_DIR"
"""Names the folder of a trial to the script; it has :data:`ORDER_FILE` in it."""

ORDER_FILE = "order.json"
FINDINGS_FILE = "findings.jsonl"


@dataclass(frozen=True, slots=True)
class CheckOrder:
    """What is tried."""

    metric: str  # which the job's tiers are about
    smaller_is_better: bool  # whether that is one to minimise
    steps: int  # how many steps of the first epoch are trained

    def write(self, folder: Path) -> None:
        """Put it into the trial's folder."""
        (folder / ORDER_FILE).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> CheckOrder:
        """What :meth:`write` wrote."""
        return cls(**json.loads((folder / ORDER_FILE).read_text()))


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that was tried."""

    check: str  # what, in a word
    ok: bool  # whether it would do in a job
    found: str  # what was found, in words

    def append(self, folder: Path) -> None:
        """Write it behind those that are there."""
        with (folder / FINDINGS_FILE).open("a") as file:
            file.write(json.dumps(asdict(self)) + "\n")


def read_findings(folder: Path, begin: int) -> Iterator[CheckFinding]:
    """What was found so far, the first first; a line that is not whole yet is left out.

    Args:
        folder: Of the trial.
        begin: How many of them are known already.
    """
    path = folder / FINDINGS_FILE
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    yield from (CheckFinding(**json.loads(line)) for line in whole[begin:])
