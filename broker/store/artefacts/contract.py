"""What an artefact store does: keeps content under its SHA-256, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.checkpoints import Artefact

CHUNK_BYTES: Final = 256 * 1024
# More is not listed, and so the broker puts no more: it holds one or two for each job, and six for each endpoint.
MAX_HELD: Final = 100_000
MAX_MARK_BYTES: Final = 4096
# What has a name and not a hash: whose place it is, and which artefacts are copies of the database, the newest first.
OWNER_MARK: Final = "owner.json"
DATABASES_MARK: Final = "databases.json"


class Artefacts(Protocol):
    """Keeps artefacts in one place.

    Every call has a deadline, ``seconds`` from now, within which it tries again what may pass. Each may raise

    * UnavailableError: The store does not answer, or refuses; says what to do.
    * CannotWriteError: It has no room left.
    """

    @property
    def where(self) -> str:
        """What people know it by; holds no secret."""

    async def put(self, artefact: Artefact, source: BinaryIO, seconds: float) -> None:
        """Keep an artefact for good; one that is there already may be written again.

        Args:
            artefact: What it is.
            source: Its content, from the beginning of a file that can be read again and does not change.
            seconds: The deadline.

        Raises:
            StoreDamagedError: The content is not what was said; nothing is kept.
        """

    async def get(self, artefact: Artefact, target: Path, seconds: float) -> None:
        """Write an artefact into a file that does not exist yet; it has the right content when this returns.

        Raises:
            NotFoundError: It is not there.
            StoreDamagedError: What is there is something else; nothing of it is left in the file's place.
        """

    async def has(self, artefact: Artefact, seconds: float) -> bool:
        """Whether an artefact is there, with its size."""

    async def delete(self, sha256: str, seconds: float) -> None:
        """Remove an artefact, if it is there."""

    async def held(self, seconds: float) -> dict[str, int]:
        """All that are there, each with its bytes; at most :data:`MAX_HELD`."""

    async def remove_unfinished(self, seconds: float) -> None:
        """Remove what an earlier life of the broker has left half; only while nobody else puts."""

    async def read_mark(self, seconds: float, *, name: str = OWNER_MARK) -> bytes | None:
        """What was written under a mark's name; None if nothing was. Of a longer one the beginning."""

    async def write_mark(self, content: bytes, seconds: float, *, only_new: bool, name: str = OWNER_MARK) -> None:
        """Write a mark, whole or not at all; with ``only_new`` nothing happens where there is one."""

    async def close(self) -> None:
        """Let go of connections and threads."""
