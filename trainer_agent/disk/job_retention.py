"""How long the folders of jobs that are over are kept: what a script wrote, and its checkpoints.

Only a job of which it is certain that nobody goes on with it here is ever noted: its last run ended by itself or was
stopped for good, in this life of the agent, and the broker has confirmed that. What is not certain is kept.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.disk.files import open_folder, remove_anything
from tiercel.trainer_agent.disk.names import is_plain

_log = logging.getLogger(__name__)

# A model that was exported last may still be on its way to the inference server.
_LEAST_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept."""

    jobs: int = 20  # folders of jobs that are over, at most; those that ended last are kept
    seconds: float = 7 * 86400.0  # how long each is kept at most


def to_remove(ended: Mapping[str, float], now: float, retention: Retention) -> list[str]:
    """The jobs whose folders are not kept any more, by id.

    Args:
        ended: When each job ended, seconds since the Unix epoch.
        now: The time.
        retention: How much is kept.
    """
    latest = sorted(ended, key=lambda job_id: (-ended[job_id], job_id))
    too_many = set(latest[retention.jobs :])
    return sorted(
        job_id
        for job_id, at in ended.items()
        if now - at >= _LEAST_SECONDS and (job_id in too_many or now - at >= retention.seconds)
    )


class EndedJobs:
    """Notes which jobs are over, across lives of the agent, and removes their folders in time.

    Args:
        notes: Folder with an empty file for each job that is over; its time is when.
        retention: How much is kept.
    """

    def __init__(self, jobs: Path, notes: Path, retention: Retention) -> None:
        notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._jobs = jobs
        self._notes = notes
        self._retention = retention
        self._complained: set[str] = set()
        self._removing = threading.Lock()

    def note_ended(self, job_id: str) -> None:
        """A job is over, and the broker knows. Where the disk takes no note of it, its folder is kept."""
        if is_plain(job_id):
            try:
                (self._notes / job_id).touch()
            except OSError as error:
                _log.error("it cannot be noted that job %s is over, so that its folder stays: %s", job_id, error)

    def note_begun(self, job_id: str) -> None:
        """A run of a job begins."""
        if is_plain(job_id):
            (self._notes / job_id).unlink(missing_ok=True)

    async def watch(self) -> None:
        """Remove what is not kept any more, now and then until cancelled."""
        while True:
            await asyncio.to_thread(self.remove, time.time())
            await asyncio.sleep(_LOOK_SECONDS)

    def make_room(self) -> None:
        """Remove all that need not be kept, since the disk has little room; blocks for as long as that takes."""
        self.remove(time.time(), Retention(jobs=0))

    def remove(self, now: float, retention: Retention | None = None) -> None:
        """Remove what is not kept any more; blocks for as long as that takes.

        Args:
            now: Seconds since the Unix epoch.
            retention: How much is kept this time, if not as usual.
        """
        with self._removing:
            self._remove(now, retention or self._retention)

    def _remove(self, now: float, retention: Retention) -> None:
        ended = {note.name: note.stat().st_mtime for note in self._notes.iterdir()}
        for job_id in to_remove(ended, now, retention):
            try:
                self._remove_folder(job_id)
            except OSError as error:
                if job_id not in self._complained:
                    self._complained.add(job_id)
                    _log.warning("the folder of job %s, which is over, cannot be removed: %s", job_id, error)
            else:
                (self._notes / job_id).unlink(missing_ok=True)
                _log.info("the folder of job %s, which is over, was removed", job_id)

    def _remove_folder(self, job_id: str) -> None:
        if not self._jobs.exists():
            return
        with open_folder(self._jobs) as inside:
            remove_anything(job_id, inside)
