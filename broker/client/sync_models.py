"""The same about versions of endpoints for programs without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiercel.broker.client.models import Models
    from tiercel.core.models import Difference, ModelCard
    from tiercel.core.views import EndpointInfo, VersionInfo


class SyncModels:
    """A blocking :class:`~tiercel.broker.client.models.Models`.

    Args:
        run: Waits for what is done with that.
    """

    def __init__(self, run: Callable[[Callable[[Models], Awaitable[Any]]], Any]) -> None:
        self._run = run

    def list(self, endpoint: str = "") -> tuple[VersionInfo, ...]:
        """See :meth:`Models.list`."""
        found: tuple[VersionInfo, ...] = self._run(lambda models: models.list(endpoint))
        return found

    def show(self, endpoint: str, version: int | None = None) -> ModelCard:
        """See :meth:`Models.show`."""
        card: ModelCard = self._run(lambda models: models.show(endpoint, version))
        return card

    def compare(self, first: tuple[str, int | None], second: tuple[str, int | None]) -> tuple[Difference, ...]:
        """See :meth:`Models.compare`."""
        found: tuple[Difference, ...] = self._run(lambda models: models.compare(first, second))
        return found

    def pull(
        self,
        endpoint: str,
        version: int | None = None,
        to: str | Path = ".",
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """See :meth:`Models.pull`; ``progress`` is called on another thread."""
        path: Path = self._run(lambda models: models.pull(endpoint, version, to, progress=progress))
        return path

    def promote(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """See :meth:`Models.promote`."""
        info: EndpointInfo = self._run(lambda models: models.promote(endpoint, version))
        return info

    def rollback(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """See :meth:`Models.rollback`."""
        info: EndpointInfo = self._run(lambda models: models.rollback(endpoint, version))
        return info

    def pin(self, endpoint: str, version: int | None = None) -> EndpointInfo:
        """See :meth:`Models.pin`."""
        info: EndpointInfo = self._run(lambda models: models.pin(endpoint, version))
        return info

    def remove(self, endpoint: str, version: int) -> None:
        """See :meth:`Models.remove`."""
        self._run(lambda models: models.remove(endpoint, version))

    def keep(self, endpoint: str, count: int) -> None:
        """See :meth:`Models.keep`."""
        self._run(lambda models: models.keep(endpoint, count))
