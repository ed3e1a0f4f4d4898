"""Which artefacts are copies of the broker's database: a mark in the store says so, as nothing else is left to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tiercel.broker.store.artefacts.contract import DATABASES_MARK
from tiercel.core.blobs import is_sha256
from tiercel.core.checkpoints import Artefact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.store.artefacts.contract import Artefacts

KEPT_DATABASES: Final = 3
"""So many copies stay; of the newest one everything else is there as well."""


@dataclass(frozen=True, slots=True)
class DatabaseCopy:
    """A copy of the database."""

    sha256: str  # of its content, hexadecimal
    size_bytes: int  # what it has
    at: float  # when it was made, seconds since the Unix epoch

    @property
    def artefact(self) -> Artefact:
        """What the store has of it."""
        return Artefact(self.sha256, self.size_bytes)


async def databases_in(artefacts: Artefacts, seconds: float) -> list[DatabaseCopy]:
    """The copies that are said to be in a store, the newest first; none where what is said makes no sense.

    Raises:
        UnavailableError: The store does not answer, or refuses.
    """
    content = await artefacts.read_mark(seconds, name=DATABASES_MARK)
    try:
        told = json.loads(content or "[]")
        copies = [DatabaseCopy(str(each["sha256"]), int(each["size_bytes"]), float(each["at"])) for each in told]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return []
    good = [copy for copy in copies if is_sha256(copy.sha256) and copy.size_bytes > 0]
    return sorted(good, key=lambda copy: -copy.at)[:KEPT_DATABASES]


async def say_databases(artefacts: Artefacts, copies: Sequence[DatabaseCopy], seconds: float) -> None:
    """Say in a store which copies it has."""
    content = json.dumps([asdict(copy) for copy in copies]).encode()
    await artefacts.write_mark(content, seconds, only_new=False, name=DATABASES_MARK)
