"""Gives tenants the ONNX files of their endpoints' versions, which nodes send to the broker for that."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, BinaryIO

from tiercel.broker.actors.endpoint_messages import FilesAsked
from tiercel.broker.actors.replicas import MAX_PULLS
from tiercel.broker.lifecycle.pulls import holders
from tiercel.broker.lifecycle.versions import kept
from tiercel.core.errors import NodeOfflineError, NotFoundError, OverloadedError, UnavailableError
from tiercel.core.model_files import MODEL_FILE

if TYPE_CHECKING:
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.store.carried import CheckpointFile
    from tiercel.broker.store.version_files import VersionStore
    from tiercel.core.endpoints import Endpoint, Version

WAIT_SECONDS = 600.0
SLOWEST_BYTES_PER_SECOND = 4 * 1024**2
# How often it is looked whether somebody has removed what is waited for.
LOOK_SECONDS = 2.0


class ModelFiles:
    """Finds versions and has their files brought."""

    def __init__(self, service: BrokerService, registry: ActorRegistry, store: VersionStore) -> None:
        self._service = service
        self._registry = registry
        self._store = store

    async def open(
        self, tenant: str, endpoint: str, number: int, name: str = MODEL_FILE
    ) -> tuple[BinaryIO, CheckpointFile]:
        """A file of a version: open where it begins, and what it is.

        Raises:
            NotFoundError: The tenant has no such endpoint, its files are kept no longer, or it has no such file.
            OverloadedError: Files of too many others are asked for.
            NodeOfflineError: No node that has them is online.
            UnavailableError: They did not come in time.
        """
        known, version = self._find(tenant, endpoint, number)
        actor = self._registry.endpoints[endpoint]
        if number not in actor.pulled and len(actor.pulled) >= MAX_PULLS:
            numbers = ", ".join(map(str, sorted(actor.pulled)))
            raise OverloadedError(f"files of versions {numbers} of {endpoint!r} are on their way; try again later")
        await actor.call(FilesAsked(number))
        nodes = self._registry.serving_nodes(endpoint)
        having = holders(known, version, nodes)
        is_here = version.stored is not None or self._store.held(endpoint).get(number) == version.sha256
        if not is_here and not any(name in nodes and nodes[name].online for name in having):
            raise NodeOfflineError(
                f"version {number} of endpoint {endpoint!r} is on node {', '.join(having) or '-'}, which is "
                "offline; try again when it is back"
            )
        seconds = WAIT_SECONDS + version.size_bytes / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            return await self._store.wait_file(endpoint, number, version.sha256, name)
                    self._find(tenant, endpoint, number)
        except TimeoutError:
            raise UnavailableError(
                f"version {number} of endpoint {endpoint!r} did not come from its node in {seconds:.0f} s; try again"
            ) from None

    def _find(self, tenant: str, name: str, number: int) -> tuple[Endpoint, Version]:
        """A version whose files are kept, and its endpoint."""
        endpoint = self._service.endpoints.find(tenant, name)
        there = kept(endpoint)
        version = next((each for each in there if each.version == number), None)
        if version is None:
            numbers = ", ".join(str(each.version) for each in there) or "none"
            raise NotFoundError(
                f"version: endpoint {name!r} keeps no files of version {number}; it keeps {numbers}", field="version"
            )
        return endpoint, version
