"""The reports of a run in a file, so that they outlive the agent: the script sends none again that the agent has.

The file is not synced: it is there for a death of the agent, and a death of the machine ends the script as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

ROOM_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4


class ReportJournal:
    """The reports of one run as they came, and now and then only those that somebody still keeps.

    The file has at most twice the bytes of what is kept, and of ``room_bytes`` where that is more.

    Args:
        path: The file; what an earlier life of the agent wrote there is there again.
        room_bytes: Below twice of this nothing is left out.
    """

    def __init__(self, path: Path, room_bytes: int = ROOM_BYTES) -> None:
        self._path = path
        self._room_bytes = room_bytes
        self._descriptor = self._open(os.O_CREAT)
        self._bytes = sum(len(record) for record, _ in self._records())
        self._kept_bytes = 0  # nobody has said yet; else the file might be let grow with every life of the agent
        # The agent may have died while it wrote the last one.
        os.ftruncate(self._descriptor, self._bytes)

    def reports(self) -> list[nodes_pb2.Progress]:
        """What is in the file, the oldest first."""
        return [report for _, report in self._records()]

    def append(self, report: nodes_pb2.Progress, kept: Iterable[nodes_pb2.Progress]) -> None:
        """Write down a report; where the disk does not take it, it would be lost with the agent.

        Args:
            report: The newest.
            kept: All that are to be there in the agent's next life, this one among them; the oldest first.
        """
        try:
            self._append(_record(report))
            if self._bytes > 2 * max(self._kept_bytes, self._room_bytes):
                self._begin_anew(kept)
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
            os.ftruncate(self._descriptor, self._bytes)  # half a record would spoil those after it
        else:
            self._bytes += len(record)

    def _begin_anew(self, kept: Iterable[nodes_pb2.Progress]) -> None:
        data = b"".join(map(_record, kept))
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(data)
        new.replace(self._path)
        os.close(self._descriptor)
        self._descriptor = self._open(0)
        self._bytes = self._kept_bytes = len(data)

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


def _record(report: nodes_pb2.Progress) -> bytes:
    data = report.SerializeToString()
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data
