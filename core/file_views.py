"""What tenants are told of the files that their jobs left behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tiercel.core.jsonable import Jsonable


@dataclass(frozen=True, slots=True)
class FileInfo(Jsonable):
    """A file that is kept of a job.

    Attributes:
        path: Relative to the working directory of the job's program, with ``/`` between its parts.
        size_bytes: Its size.
        sha256: Of its content, hexadecimal.
        run_id: The run that left it behind.
        kept_at: Since when it is kept.
    """

    path: str
    size_bytes: int
    sha256: str
    run_id: str
    kept_at: datetime
