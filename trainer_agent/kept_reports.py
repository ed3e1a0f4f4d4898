"""The last reports of a run, also across the agent's death: in memory for the broker, and in a file.

The script was told that they have arrived, so that it does not send them again. The file is not synced: it is there for
a death of the agent, and a death of the machine ends the script as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

MOST_REPORTS: Final = 1000
MOST_BYTES: Final = 4 << 20
_LENGTH_BYTES: Final = 4


class KeptReports:
    """The reports of one run: at most so many, of at most so many bytes, the newest.

    Args:
        path: Their file; what an earlier life of the agent kept there is there again.
        most_reports: How many are kept. The file has up to twice as many.
        most_bytes: How many bytes they may have.
    """

    def __init__(self, path: Path, most_reports: int = MOST_REPORTS, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_reports = most_reports
        self._most_bytes = most_bytes
        self._reports: deque[tuple[nodes_pb2.Progress, int]] = deque()
        self._bytes = 0
        self._in_file, self._file_bytes = 0, 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._load()

    def __iter__(self) -> Iterator[nodes_pb2.Progress]:
        """The oldest first."""
        return iter([report for report, _ in self._reports])

    @property
    def last_sequence(self) -> int:
        """The number of the newest, 0 if there is none."""
        return int(self._reports[-1][0].sequence) if self._reports else 0

    def append(self, report: nodes_pb2.Progress) -> None:
        """Keep a report; where the disk does not take it, for this life of the agent alone."""
        record = _record(report)
        self._remember(report, len(record))
        try:
            if self._in_file >= 2 * self._most_reports or self._file_bytes >= 2 * self._most_bytes:
                self._begin_file_anew()
            else:
                self._write(record)
        except OSError as error:
            _log.warning("a report of %s would be lost with the agent: %s", self._path.stem, error)

    def remove(self) -> None:
        """Let go of the file and remove it. Doing it twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._path.unlink(missing_ok=True)

    def _remember(self, report: nodes_pb2.Progress, size: int) -> None:
        self._reports.append((report, size))
        self._bytes += size
        while len(self._reports) > self._most_reports or (self._bytes > self._most_bytes and len(self._reports) > 1):
            self._bytes -= self._reports.popleft()[1]

    def _load(self) -> None:
        data = self._path.read_bytes()
        at = 0
        while at + _LENGTH_BYTES <= len(data):
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            report = nodes_pb2.Progress()
            with contextlib.suppress(DecodeError):
                report.ParseFromString(data[at + _LENGTH_BYTES : end])
            if end > len(data) or not report.sequence:
                break
            self._remember(report, end - at)
            self._in_file += 1
            at = end
        # The agent died while it wrote the rest.
        os.ftruncate(self._descriptor, at)
        self._file_bytes = at

    def _begin_file_anew(self) -> None:
        """Leave out of the file what is no longer kept."""
        new = self._path.with_suffix(".new")
        new.write_bytes(b"".join(_record(report) for report, _ in self._reports))
        new.replace(self._path)
        os.close(self._descriptor)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._in_file, self._file_bytes = len(self._reports), self._bytes

    def _write(self, record: bytes) -> None:
        written = os.write(self._descriptor, record)
        if written < len(record):  # the disk is nearly full; half a record would spoil those after it
            os.ftruncate(self._descriptor, self._file_bytes)
            return
        self._in_file += 1
        self._file_bytes += written


def _record(report: nodes_pb2.Progress) -> bytes:
    data = report.SerializeToString()
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
