"""Leaves the table of who may ask what where the inference server of the node finds it, before a model answers by it.

The file outlives broker, agent and inference server. Of endpoints that a broker does not name, the rules stay for as
long as models of theirs are here: one with an empty database opens nothing and shuts nothing.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from tiercel.core import storage
from tiercel.core.complaints import Complaint
from tiercel.core.endpoint_access import AccessTable
from tiercel.core.model_files import LIVE_FILE
from tiercel.core.private_files import write_private
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models.variants import place_of

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 10.0


class AccessKeeper:
    """Writes the newest table there is."""

    def __init__(self, path: Path, repository: Path) -> None:
        self._path = path
        self._repository = repository
        self._wanted: AccessTable | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    async def begin(self) -> None:
        """Make a table for a node without models; where there are some and none is there, the broker's is waited for.

        Raises:
            OSError: It cannot be written.
        """
        if not await asyncio.to_thread(self._is_lost):
            return
        _log.warning("%s is not there: until a broker says who may ask models, nobody may", self._path)

    def _is_lost(self) -> bool:
        if self._path.exists():
            return False
        if self._delivered():
            return True
        write_private(self._path, storage.to_json(AccessTable()).encode())
        return False

    def want(self, table: AccessTable | None) -> None:
        """Have this table written; in place of an earlier one that is not.

        Args:
            table: What the broker says; None for one that says nothing of it, as those before 0.2 did.
        """
        if table is None:
            if self._wanted is not None or self._path.exists():
                return
            table = AccessTable()
        if table != self._wanted:
            self._wanted = table
            self._settled.clear()
            self._changed.set()

    async def wait_written(self) -> None:
        """Wait until the newest table is written, so that what is loaded then answers nobody whom it should not.

        Raises:
            DeliveryFailedError: It cannot be.
        """
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            raise DeliveryFailedError(
                "Its node cannot write down who may ask the model; the agent's log says why."
            ) from None

    async def run(self) -> None:
        """Write for ever."""
        complaint = Complaint(_log, "the table of who may ask what cannot be written: %s")
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted
            if wanted is None:
                continue
            try:
                await asyncio.to_thread(self._write, wanted)
            except OSError as error:
                complaint.note(str(error))
                self._changed.set()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            complaint.note("")
            if not self._changed.is_set():
                self._settled.set()

    def _write(self, table: AccessTable) -> None:
        named = {rule.endpoint for rule in table.endpoints}
        here = self._delivered() - named
        kept = tuple(rule for rule in self._read().endpoints if rule.endpoint in here) if here else ()
        write_private(self._path, storage.to_json(AccessTable((*table.endpoints, *kept))).encode())

    def _read(self) -> AccessTable:
        try:
            return storage.from_json(AccessTable, self._path.read_text())
        except (OSError, ValueError):
            return AccessTable()

    def _delivered(self) -> set[str]:
        """Endpoints of which the agent has put models here."""
        try:
            folders = list(self._repository.iterdir())
        except OSError:
            return set()
        return {place_of(folder.name).endpoint for folder in folders if (folder / LIVE_FILE).exists()}
