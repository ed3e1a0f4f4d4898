"""All data sets that a run may ask for: those that the node's operator offers, and those that a URL names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from tiercel.core.data_sets import DataSet
from tiercel.core.errors import SetupError
from tiercel.trainer_agent.data.cache import Asker, DataCache, DataLimits
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.data.offered import OfferedData


class RunData:
    """Finds data sets for runs."""

    def __init__(self, agent_dir: Path, limits: DataLimits | None = None) -> None:
        self.offered = OfferedData(agent_dir)
        self._cache = DataCache(agent_dir / "data-cache", limits or DataLimits())

    async def open(self) -> None:
        """See what is there.

        Raises:
            SetupError: The cache's folder cannot be used.
        """
        try:
            await asyncio.to_thread(self._cache.table.load)
        except OSError as error:
            raise SetupError(f"The agent cannot use its cache of data: {error}.") from error
        with contextlib.suppress(TimeoutError):  # a disk that does not answer now may do so later
            await self.offered.look()

    async def mounts(
        self,
        run_id: str,
        wanted: Iterable[DataSet],
        say: Callable[[str], None],
        check: Callable[[], None],
    ) -> tuple[DataMount, ...]:
        """Where a run finds its data sets, once they are all here.

        Args:
            run_id: The run; what it uses stays until :meth:`release`.
            wanted: What it asks for.
            say: Writes a line into its log.
            check: Raises where it is not to start any more; called all the time.

        Raises:
            RunFailedError: One cannot be had.
            DataGoneError: One cannot be had here now, through no fault of the job.
        """
        wanted = list(wanted)
        offered = await self.offered.mounts([each.name for each in wanted if not each.url])
        asker = Asker(run_id, say, check)
        fetched = [await self._cache.provide(asker, each) for each in wanted if each.url]
        return (*offered, *fetched)

    def hold(self, run_id: str, wanted: Iterable[DataSet]) -> None:
        """A run that an earlier life of the agent started uses this."""
        for each in wanted:
            if each.url:
                self._cache.table.hold(run_id, each.url)

    def release(self, run_id: str) -> None:
        """A run has ended; may have to wait for who looks at the cache."""
        self._cache.table.release(run_id)

    def make_room(self) -> None:
        """Remove what no run uses, since the disk has little room; blocks for as long as that takes."""
        self._cache.table.make_room()
