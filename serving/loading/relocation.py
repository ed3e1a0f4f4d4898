"""Moves a live version between the accelerator and the CPU, so that the next one has room; requests notice nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from tiercel.core.errors import TiercelError, UnavailableError
from tiercel.serving.loading.loader import Loader
from tiercel.serving.models import repository
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import ModelRecord
from tiercel.serving.runtime.engine import Session

_logger = logging.getLogger(__name__)

# Requests have deadlines; whatever runs for longer than this is not waited for.
_DRAIN_SECONDS = 60.0


class Relocation:
    """Moves versions."""

    def __init__(self, root: Path, loader: Loader, release: Callable[[LoadedVersion, ModelRecord, str], None]) -> None:
        self._root = root
        self._loader = loader
        self._release = release

    async def to_cpu(self, record: ModelRecord) -> None:
        """Let the live version answer from the CPU, and free what it had of the accelerator; its model is locked.

        Raises:
            TiercelError: It stays where it is, or its last requests take too long to wait for.
        """
        live = record.live
        if live is None:
            return
        old = self._replace(record, live, await self._loader.session_on_cpu(self._artefact(live)))
        _logger.info("Version %d of model '%s' answers from the CPU meanwhile", old.version, old.model)
        is_drained = False
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                for each in old.by_kind.values():
                    await each.wait_drained()
            is_drained = True
        except TimeoutError as error:
            raise UnavailableError(
                f"requests to version {old.version} of model '{old.model}' have kept the accelerator for "
                f"{_DRAIN_SECONDS:g} seconds; load it again"
            ) from error
        finally:
            if not is_drained:
                self._release(old, record, "moved to the CPU")
        for each in old.by_kind.values():
            await self._loader.free(each.close())

    async def back(self, record: ModelRecord) -> None:
        """Let the live version answer from where it would be loaded to; it stays on the CPU if that fails."""
        live = record.live
        if live is None or live.session.provider.is_accelerator:
            return
        try:
            session = await self._loader.session(self._artefact(live))
        except TiercelError as error:
            _logger.warning("Version %d of model '%s' stays on the CPU: %s", live.version, live.model, error.message)
            return
        self._release(self._replace(record, live, session), record, "moved")

    def _replace(self, record: ModelRecord, live: LoadedVersion, session: Session) -> LoadedVersion:
        """Let the version answer from another session; returns what it was before."""
        moved = LoadedVersion(live.model, live.version, session, live.account, live.statistics)
        # Those on the CPU stay there; one beside it on the accelerator goes, until the version is loaded again.
        moved.cheap = {kind: each for kind, each in live.cheap.items() if not each.session.provider.is_accelerator}
        live.cheap = {kind: each for kind, each in live.cheap.items() if kind not in moved.cheap}
        return record.move(moved)

    def _artefact(self, version: LoadedVersion) -> repository.Artefact:
        return repository.artefact(self._root, version.model, version.version)
