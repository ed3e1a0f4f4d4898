"""What takes room below the agent's state directory, measured now and then for whoever asks the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.disk.watch import measure
from tiercel.v1 import disk_pb2

_log = logging.getLogger(__name__)

_FIRST_LOOK_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 600.0
_SHARE_OF_TIME: Final = 0.02
# What else there is counts as one.
_MAX_FOLDERS: Final = 31
_OTHER: Final = "other files"


class RoomWatch:
    """Measures now and then.

    Attributes:
        measured: What was found last; None before the first time.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.measured: disk_pb2.NodeDisk | None = None

    def free_and_total(self) -> tuple[int, int] | None:
        """What the file system has left and in all, in bytes, as it is now; None where it does not say."""
        try:
            return _free_and_total(self._state_dir)
        except OSError:
            return None

    def told(self) -> disk_pb2.NodeDisk | None:
        """What was measured last, with what the disk has left now; None before the first time."""
        if self.measured is None or (now := self.free_and_total()) is None:
            return self.measured
        return disk_pb2.NodeDisk(parts=self.measured.parts, free_bytes=now[0], total_bytes=now[1])

    async def run(self) -> None:
        """Measure until cancelled; that takes a fiftieth of a thread's time at most."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        while True:
            began = time.monotonic()
            try:
                self.measured = await asyncio.to_thread(measure_room, self._state_dir)
            except OSError as error:
                _log.warning("what takes room cannot be measured: %s", error)
            await asyncio.sleep(max(_LOOK_SECONDS, (time.monotonic() - began) / _SHARE_OF_TIME))


def _free_and_total(place: Path) -> tuple[int, int]:
    file_system = os.statvfs(place)
    return file_system.f_bavail * file_system.f_frsize, file_system.f_blocks * file_system.f_frsize


def _others_last(part: tuple[str, int]) -> tuple[bool, str]:
    return part[0] == _OTHER, part[0]


def measure_room(state_dir: Path) -> disk_pb2.NodeDisk:
    """What takes room below a folder, by the folders in it; follows no link, and blocks while the disk works."""
    sizes: dict[str, int] = {}
    for entry in sorted(os.scandir(state_dir), key=lambda each: each.name):
        is_folder = entry.is_dir(follow_symlinks=False)
        name = entry.name if is_folder and len(sizes) < _MAX_FOLDERS else _OTHER
        size = measure(Path(entry.path)).size_bytes if is_folder else entry.stat(follow_symlinks=False).st_size
        sizes[name] = sizes.get(name, 0) + size
    free_bytes, total_bytes = _free_and_total(state_dir)
    return disk_pb2.NodeDisk(
        parts=[
            disk_pb2.RoomTaken(name=name, size_bytes=size)
            for name, size in sorted(sizes.items(), key=_others_last)
            if size
        ],
        free_bytes=free_bytes,
        total_bytes=total_bytes,
    )
