"""Scratch folders: room on the disk that a run asked for, and that is empty again when it has ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from tiercel.trainer_agent.disk.files import open_folder, remove_folder
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.errors import RunFailedError

_log = logging.getLogger(__name__)


class ScratchFolders:
    """The scratch folders of a node's runs. All of it blocks while the disk works."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, run_id: str) -> Path:
        """The scratch folder of a run, be it there or not."""
        return self._root / run_id

    def make(self, run_id: str, owner: tuple[int, int] | None) -> Path:
        """Make the scratch folder of a run, empty.

        Raises:
            RunFailedError: It cannot be made.
        """
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open_folder(self._root) as root:
                if os.path.lexists(self.path(run_id)):
                    remove_folder(run_id, root)
                os.mkdir(run_id, 0o700, dir_fd=root)
                if owner is not None and owner != (os.getuid(), os.getgid()):
                    os.chown(run_id, *owner, dir_fd=root, follow_symlinks=False)
        except OSError as error:
            raise RunFailedError(f"The scratch folder of the run cannot be made: {error}.") from error
        return self.path(run_id)

    def remove(self, run_id: str) -> None:
        """Remove what a run that has ended left behind; what cannot be goes when the agent starts the next time."""
        if not is_plain(run_id) or not os.path.lexists(self.path(run_id)):
            return
        try:
            with open_folder(self._root) as root:
                remove_folder(run_id, root)
        except OSError as error:
            _log.warning("the scratch folder of run %s, which has ended, cannot be removed: %s", run_id, error)

    def remove_others(self, kept: Collection[str]) -> None:
        """Remove those of all runs but these, as an earlier life of the agent may have left some."""
        if self._root.is_dir():
            for path in list(self._root.iterdir()):
                if path.name not in kept:
                    self.remove(path.name)
