"""Where a run finds a data set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.data_sets import variable_of

CONTAINER_FOLDER: Final = "/tiercel-data"
"""Where data sets are in containers."""


@dataclass(frozen=True, slots=True)
class DataMount:
    """A data set of a run."""

    name: str  # as the job calls it
    path: Path  # the file or folder on the node, with no links in it
    is_folder: bool  # whether it is a folder
    sha256: str = ""  # what came from its URL; empty for what the node offers

    @property
    def inside(self) -> str:
        """Where it is in a container: a folder by its name, and a file with its own name in there."""
        folder = f"{CONTAINER_FOLDER}/{self.name}"
        return folder if self.is_folder else f"{folder}/{self.path.name}"


def variables(mounts: Iterable[DataMount], *, in_container: bool) -> dict[str, str]:
    """What tells a program where its data sets are."""
    return {variable_of(each.name): each.inside if in_container else str(each.path) for each in mounts}
