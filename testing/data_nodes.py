"""The data cache of a node, by itself, and what runs that asked it for data were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testing.data_servers import CONTENT
from tiercel.core.data_sets import DataSet
from tiercel.trainer_agent.data.cache import Asker, DataCache, DataLimits
from tiercel.trainer_agent.data.fetching import FetchLimits
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.data.sources import AllowedSources
from tiercel.trainer_agent.errors import AgentError, RunFailedError

LIMITS = DataLimits(
    cache_bytes=10 * len(CONTENT),
    reserve_bytes=0,
    sources=AllowedSources(("http://127.0.0.1",)),
    fetch=FetchLimits(silence_seconds=20.0),
    pauses=(0.01,),
)


@dataclass
class Node:
    """A node's cache, and what runs were told."""

    folder: Path
    limits: DataLimits = LIMITS
    lines: list[str] = field(default_factory=list)
    stopped: bool = False
    cache: DataCache = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another life of the agent."""
        self.cache = DataCache(self.folder, self.limits)
        self.cache.table.load()

    def check(self) -> None:
        """Raise where runs are not to start any more."""
        if self.stopped:
            raise RunFailedError("stopped")

    async def get(self, url: str, sha256: str = "", run_id: str = "job-1") -> DataMount:
        """Have a data set there for a run."""
        asker = Asker(run_id, self.lines.append, self.check)
        return await self.cache.provide(asker, DataSet("digits", url, sha256))

    async def refusal(self, url: str, sha256: str = "") -> AgentError:
        """Why a data set cannot be had."""
        with pytest.raises(AgentError) as caught:
            await self.get(url, sha256)
        assert self.files() == [], "nothing of it is left"
        return caught.value

    def files(self) -> list[Path]:
        """All that is in the cache."""
        return [path for path in self.folder.rglob("*") if path.is_file()]
