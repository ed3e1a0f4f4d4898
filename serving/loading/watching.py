"""Begins to watch what versions are asked, keeps on disk what they were asked at first, and tells what was found."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from tiercel.serving.models import repository

if TYPE_CHECKING:
    from tiercel.serving.dispatch.variants.endpoints import Endpoints
    from tiercel.serving.loading.loader import Loader
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.models.registry import Registry
    from tiercel.serving.tasks import StartTask

FILE: Final = "inputs.json"
_MOST_BYTES: Final = 1024**2

_logger = logging.getLogger(__name__)


class Watching:
    """See the module.

    Args:
        root: The repository.
        interval: Seconds from one row that is looked at to the next, of each version on average; 0: nothing is watched.
    """

    def __init__(self, root: Path, loader: Loader, start_task: StartTask, interval: float) -> None:
        self._root, self._loader, self._start_task, self._interval = root, loader, start_task, interval
        self._draw = Random()  # noqa: S311 - which rows are looked at is no secret

    async def begin(self, new: LoadedVersion) -> None:
        """Watch what a version is asked that nobody asks yet; its session is freed where this is broken off."""
        if not self._interval:
            return
        path = repository.artefact(self._root, new.model, new.version).path.with_name(FILE)
        try:
            known = await self._loader.look_up(_read, path)
        except BaseException:
            await self._loader.free(new.close())
            raise
        keep = partial(self._keep, path)
        new.statistics.inputs.begin(new.session.inputs, self._interval, self._draw, known, keep)

    def _keep(self, path: Path, reference: dict[str, Any]) -> None:
        self._start_task(self._write(path, reference), f"keep {path}")

    async def _write(self, path: Path, reference: dict[str, Any]) -> None:
        try:
            await self._loader.look_up(_write, path, reference)
        except OSError as error:  # then the reference ends with the process
            _logger.warning("%s cannot be written: %s", path, error.strerror)


def told(registry: Registry, endpoints: Endpoints | None, since: float = -math.inf) -> list[dict[str, Any]]:
    """What is known of each live version that is watched; of an endpoint's variants with their names.

    Args:
        registry: The models.
        endpoints: Names that stand for several variants, if there are any.
        since: Versions of which no row was taken since then are left out, by the clock of requests.
    """
    variants = endpoints.variants() if endpoints is not None else {}
    found = []
    for record in registry.records():
        watch = record.live.statistics.inputs if record.live is not None else None
        if record.live is None or watch is None or watch.taken_at < since:
            continue
        if (known := watch.as_json()) is not None:
            model, variant = variants.get(record.name, (record.name, ""))
            found.append({"model": model, "variant": variant, "version": record.live.version_text, **known})
    return found


def _read(path: Path) -> Mapping[str, Any] | None:
    """A reference that was kept; None where there is none, or something else. Blocks."""
    try:
        with path.open("rb") as file:
            content = orjson.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: Path, reference: dict[str, Any]) -> None:
    """Keep a reference; all of it is there, or nothing. Blocks."""
    part = path.with_name(f".{FILE}.part")
    part.write_bytes(orjson.dumps(reference))
    part.replace(path)
