"""What an endpoint's actor keeps of its copies on other nodes: whom it waits for, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import replicas
from tiercel.broker.lifecycle.awaited import Awaited
from tiercel.broker.lifecycle.pulls import pulled_files, with_pulls
from tiercel.broker.lifecycle.versions import VersionFiles
from tiercel.core.endpoints import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.delivery_work import Work
    from tiercel.broker.actors.peers import Peers
    from tiercel.broker.lifecycle.replicas import Upcoming
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.core.endpoints import Delivery, Endpoint, Version

# For how long a version that was delivered waits for copies of it on other nodes, and then for these to answer. What
# takes longer is caught up with later.
COPY_SECONDS = 120.0
FLIP_SECONDS = 60.0
# For how long a node is waited for that is to answer with a file which somebody deployed.
DEPLOY_SECONDS = 1200.0
# For how long a node is not asked again for a version that its inference server refused.
REFUSED_SECONDS = 300.0
# For how long the broker holds the files of a version that its tenant asked for, and of how many versions at once.
PULL_SECONDS = 600.0
MAX_PULLS = 4


class Replicas:
    """Looks at nodes for one endpoint.

    Attributes:
        from_store: Versions whose files the artefact store shall give back.
    """

    def __init__(self, clock: Clock, peers: Peers) -> None:
        self._clock = clock
        self._peers = peers
        self.from_store: tuple[Version, ...] = ()
        self._since: dict[Hashable, float] = {}
        self._refused: dict[tuple[str, int], tuple[float, str]] = {}
        self._pulled: dict[int, float] = {}

    @property
    def pulled(self) -> Collection[int]:
        """Numbers of the versions whose files are held, or on their way, since its tenant asked for them."""
        return self._pulled.keys()

    def pull(self, version: int) -> None:
        """Have the files of a version sent to the broker, and held for a while; of too many at once of none more."""
        if version in self._pulled or len(self._pulled) < MAX_PULLS:
            self._pulled[version] = self._clock.alive()

    def nodes(self, endpoint: Endpoint) -> Mapping[str, ServingNode]:
        """What nodes are to it now; what one refused a while ago, it refuses still."""
        now = self._clock.alive()
        nodes = dict(self._peers.serving_nodes(endpoint.name))
        self._refused = {key: kept for key, kept in self._refused.items() if now - kept[0] < REFUSED_SECONDS}
        for node in list(nodes.values()):
            for version, reason in node.refused.items():
                self._refused.setdefault((node.id, version), (now, reason))
        for (node_id, version), (_, reason) in self._refused.items():
            if node_id in nodes:
                node = nodes[node_id]
                nodes[node_id] = replace(node, failed={**node.failed, version: reason})
        return nodes

    def upcoming(
        self, endpoint: Endpoint, nodes: Mapping[str, ServingNode], deliveries: Iterable[tuple[Delivery, str]]
    ) -> list[Upcoming]:
        """The versions that are to answer soon, of deliveries with the nodes that have their models."""
        return [replicas.upcoming(endpoint, delivery, node_id, nodes) for delivery, node_id in deliveries]

    def under_way(
        self,
        endpoint: Endpoint,
        nodes: Mapping[str, ServingNode],
        deliveries: Mapping[str, Delivery],
        works: Mapping[str, Work],
    ) -> list[Upcoming]:
        """The same of those that are under way, were judged, and do not answer yet."""
        judged = [
            (deliveries[known], work.node_id)
            for known, work in works.items()
            if work.node_id and deliveries[known].verdict is Verdict.LIVE and work.answered is None
        ]
        return self.upcoming(endpoint, nodes, judged)

    def wanted(
        self, endpoint: Endpoint, nodes: Mapping[str, ServingNode], coming: Sequence[Upcoming]
    ) -> Mapping[str, tuple[WantedModel, ...]]:
        """What is wanted of each node; what the broker holds and nobody needs any more is removed."""
        held, has_store = self._peers.held_files(endpoint.name), self._peers.has_store
        now = self._clock.alive()
        self._pulled = {version: since for version, since in self._pulled.items() if now - since < PULL_SECONDS}
        needed = {
            *replicas.needed_files(endpoint, nodes, coming, held, has_store=has_store),
            *pulled_files(endpoint, self._pulled),
            *(VersionFiles(each.delivery.version, each.delivery.sha256) for each in endpoint.coming),
        }
        numbers = {files.version for files in needed}
        offered = self._peers.held_files(endpoint.name, arriving=True)
        if offered.keys() - numbers:
            self._peers.keep_files(endpoint.name, numbers)
        self.from_store = replicas.from_store(endpoint, nodes, needed, held) if has_store else ()
        wanted = replicas.wanted(endpoint, nodes, coming, held, has_store=has_store, offered=offered)
        return with_pulls(wanted, endpoint, nodes, self._pulled, held)

    def waits_for_copies(self, coming: Upcoming, nodes: Mapping[str, ServingNode]) -> bool:
        """Whether a version shall not answer yet, since copies of it are on their way."""
        return self._waits(("copy", coming.files.delivery_id), replicas.without_files(coming, nodes), COPY_SECONDS)

    def waits_for_flips(self, endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> bool:
        """Whether other nodes are about to answer with what is live by now."""
        waited = replicas.not_flipped(endpoint, nodes)
        return self._waits(("flip", endpoint.live_version), waited, FLIP_SECONDS)

    def awaited(
        self, endpoint: Endpoint, deliveries: Mapping[str, Delivery], works: Mapping[str, Work]
    ) -> tuple[Awaited, ...]:
        """The versions that are not announced yet, since other nodes are waited for."""
        nodes, now = self.nodes(endpoint), self._clock.alive()
        found = []
        for coming in self.under_way(endpoint, nodes, deliveries, works):
            files, waited = coming.files, replicas.without_files(coming, nodes)
            if waited and not works[files.delivery_id].released:
                since = now - self._since.get(("copy", files.delivery_id), now)
                found.append(Awaited(files, coming.node_id, waited, since, COPY_SECONDS))
        waited = replicas.not_flipped(endpoint, nodes)
        for known, work in works.items():
            if waited and work.answered is not None:
                files = VersionFiles(deliveries[known].version, deliveries[known].sha256, known)
                since = now - self._since.get(("flip", endpoint.live_version), now)
                found.append(Awaited(files, work.node_id, waited, since, FLIP_SECONDS, answers=True))
        return tuple(found)

    def is_late(self, delivery_id: str) -> bool:
        """Whether a node has been asked to answer with a file for too long."""
        return not self._waits(("deploy", delivery_id), (delivery_id,), DEPLOY_SECONDS)

    def _waits(self, key: Hashable, waited: Sequence[str], limit_seconds: float) -> bool:
        now = self._clock.alive()
        if not waited:
            self._since.pop(key, None)
            return False
        return now - self._since.setdefault(key, now) < limit_seconds
