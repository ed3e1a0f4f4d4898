"""The data sets that the node's operator offers, as they are now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tiercel.core.declared_data import DataDeclarations, DeclaredData
from tiercel.core.errors import UnavailableError
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.errors import DataGoneError
from tiercel.v1 import common_pb2

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class OfferedData:
    """Knows which declared data sets are there. A disk that hangs holds up a thread, and nothing else.

    Args:
        agent_dir: The agent's state directory.
    """

    def __init__(self, agent_dir: Path) -> None:
        self._declarations = DataDeclarations(agent_dir)
        self._there: dict[str, DeclaredData] = {}
        self._problem = ""

    async def look(self) -> None:
        """See what is there now."""
        self._there = await asyncio.to_thread(self._read)

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    def told(self) -> list[common_pb2.NodeData]:
        """What the broker is told: no paths."""
        return [common_pb2.NodeData(name=each.name, size_bytes=each.size_bytes) for each in self._there.values()]

    async def mounts(self, names: Sequence[str]) -> tuple[DataMount, ...]:
        """Where a run finds data sets.

        Raises:
            DataGoneError: One is not there any more; from then on the broker is told so.
        """
        if not names:
            return ()
        await self.look()
        for name in names:
            if name not in self._there:
                raise DataGoneError(f"its node has the data set {name!r} no more")
        return await asyncio.to_thread(self._mounts, names)

    def _mounts(self, names: Sequence[str]) -> tuple[DataMount, ...]:
        paths = {name: self._there[name].path for name in names}
        return tuple(DataMount(name, path, path.is_dir()) for name, path in paths.items())

    def _read(self) -> dict[str, DeclaredData]:
        try:
            declared = self._declarations.read()
        except UnavailableError as error:
            self._complain(error.message)
            return dict(self._there)
        gone = [
            f"data set {name} is not at {each.path} any more" for name, each in declared.items() if not each.is_there
        ]
        self._complain("; ".join(gone))
        return {name: each for name, each in declared.items() if each.is_there}

    def _complain(self, problem: str) -> None:
        """Say once what is wrong."""
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
