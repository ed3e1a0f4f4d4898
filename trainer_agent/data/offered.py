"""The data sets that the node's operator offers, as they are now."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tiercel.core.complaints import Complaint
from tiercel.core.declared_data import DataDeclarations, DeclaredData
from tiercel.core.errors import UnavailableError
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.errors import DataGoneError
from tiercel.v1 import common_pb2

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 10.0

_There = Mapping[str, tuple[DeclaredData, DataMount]]


class OfferedData:
    """Knows which declared data sets are there.

    A disk that hangs, as one of the network may, holds up one thread of its own, for which nobody waits for long.
    """

    def __init__(self, agent_dir: Path) -> None:
        self._declarations = DataDeclarations(agent_dir)
        self._there: _There = {}
        self._complaint = Complaint(_log)
        self._look: asyncio.Future[None] | None = None

    async def look(self) -> None:
        """See what is there now; whoever asks while somebody looks waits for the same look.

        Raises:
            TimeoutError: The disk does not answer.
        """
        if self._look is None or self._look.done():
            loop = asyncio.get_running_loop()
            self._look = loop.create_future()
            thread = threading.Thread(target=self._work, args=(loop, self._look), name="offered data", daemon=True)
            thread.start()
        async with asyncio.timeout(_ANSWER_SECONDS):
            await asyncio.shield(self._look)

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except TimeoutError:
                self._complaint.note("a disk with data sets does not answer")

    def told(self) -> list[common_pb2.NodeData]:
        """What the broker is told: no paths."""
        return [common_pb2.NodeData(name=each.name, size_bytes=each.size_bytes) for each, _ in self._there.values()]

    async def mounts(self, names: Sequence[str]) -> tuple[DataMount, ...]:
        """Where a run finds data sets.

        Raises:
            DataGoneError: One is not there any more; from then on the broker is told so.
        """
        if not names:
            return ()
        try:
            await self.look()
        except TimeoutError:
            raise DataGoneError("a disk of its node with data sets does not answer") from None
        for name in names:
            if name not in self._there:
                raise DataGoneError(f"its node has the data set {name!r} no more")
        return tuple(self._there[name][1] for name in names)

    def _work(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        there = self._read()
        with contextlib.suppress(RuntimeError):  # the agent has left meanwhile
            loop.call_soon_threadsafe(self._know, there, done)

    def _know(self, there: _There | None, done: asyncio.Future[None]) -> None:
        if there is not None:
            self._there = there
        if not done.done():
            done.set_result(None)

    def _read(self) -> _There | None:
        """What is there; None where nobody can tell, so that it stays as it was."""
        try:
            declared = self._declarations.read()
        except UnavailableError as error:
            self._complaint.note(error.message)
            return None
        there = {name: each for name, each in declared.items() if each.is_there}
        gone = [
            f"data set {name} is not at {each.path} any more" for name, each in declared.items() if name not in there
        ]
        self._complaint.note("; ".join(gone))
        return {name: (each, DataMount(name, each.path, each.path.is_dir())) for name, each in there.items()}
