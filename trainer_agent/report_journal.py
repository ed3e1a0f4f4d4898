"""The reports of a run in a file, so that they outlive the agent: the script sends none again that the agent has.

The file is not synced: it is there for a death of the agent, and a death of the machine ends the script as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

MOST_REPORTS: Final = 1000
MOST_BYTES: Final = 4 << 20
_LENGTH_BYTES: Final = 4


class ReportJournal:
    """The newest reports of one run: at least so many, unless they have more bytes than that.

    Args:
        path: Their file; what an earlier life of the agent wrote there is there again.
        most_reports: How many are worth keeping. The file has up to twice as many.
        most_bytes: How many bytes of them are. The file has up to twice as many, and one report more.
    """

    def __init__(self, path: Path, most_reports: int = MOST_REPORTS, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_reports = most_reports
        self._most_bytes = most_bytes
        self._descriptor = self._open(os.O_CREAT)
        self._sizes = [len(record) for record, _ in self._records()]
        # The agent may have died while it wrote the last one.
        os.ftruncate(self._descriptor, sum(self._sizes))

    def reports(self) -> list[nodes_pb2.Progress]:
        """What is in the file, the oldest first."""
        return [report for _, report in self._records()]

    def append(self, report: nodes_pb2.Progress) -> None:
        """Keep a report; where the disk does not take it, it would be lost with the agent."""
        data = report.SerializeToString()
        try:
            self._append(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            if len(self._sizes) > 2 * self._most_reports or sum(self._sizes) > 2 * self._most_bytes:
                self._drop_oldest()
        except OSError as error:
            _log.warning("a report of run %s would be lost with the agent: %s", self._path.stem, error)

    def remove(self) -> None:
        """Let go of the file and remove it. Doing it twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._path.unlink(missing_ok=True)

    def _append(self, record: bytes) -> None:
        if os.write(self._descriptor, record) < len(record):
            os.ftruncate(self._descriptor, sum(self._sizes))  # half a record would spoil those after it
            return
        self._sizes.append(len(record))

    def _drop_oldest(self) -> None:
        records = [record for record, _ in self._records()][-self._most_reports :]
        while len(records) > 1 and sum(map(len, records)) > self._most_bytes:
            del records[0]
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(b"".join(records))
        new.replace(self._path)
        os.close(self._descriptor)
        self._descriptor = self._open(0)
        self._sizes = [len(record) for record in records]

    def _open(self, more: int) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o600)

    def _records(self) -> list[tuple[bytes, nodes_pb2.Progress]]:
        """What is in the file, as it is written and as it is meant, up to where it makes sense."""
        data, at = self._path.read_bytes(), 0
        records = []
        while at + _LENGTH_BYTES <= len(data):
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            report = nodes_pb2.Progress()
            with contextlib.suppress(DecodeError):
                report.ParseFromString(data[at + _LENGTH_BYTES : end])
            if end > len(data) or not report.sequence:
                break
            records.append((data[at:end], report))
            at = end
        return records
