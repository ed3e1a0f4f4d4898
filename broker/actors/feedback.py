"""What nodes say of versions in use: how often they are right, as applications say, and what they are asked."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.feedback import VersionFeedback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.drift import Asked
    from tiercel.core.drift import InputDrift
    from tiercel.core.endpoints import Endpoint


class FeedbackHeard:
    """What was heard since the broker began: of each node its last word, of versions that their endpoints know."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, tuple[VersionFeedback, ...]]] = {}

    def of(self, endpoint: str) -> Mapping[int, VersionFeedback]:
        """What was heard of each version of an endpoint, at all nodes together."""
        found: dict[int, VersionFeedback] = {}
        for said in self._heard.get(endpoint, {}).values():
            for each in said:
                before = found.get(each.version, VersionFeedback(each.version, 0, 0))
                found[each.version] = VersionFeedback(each.version, before.rows + each.rows, before.right + each.right)
        return found

    def forget(self, endpoint: str) -> None:
        """Drop what was heard of an endpoint that is no more: its name may be somebody else's next."""
        self._heard.pop(endpoint, None)

    def forget_node(self, node_id: str) -> None:
        """Drop what a node said that was removed: its last word would count for ever, as if it were of now."""
        for said in self._heard.values():
            said.pop(node_id, None)

    def note(self, endpoint: Endpoint, node_id: str, said: tuple[VersionFeedback, ...]) -> None:
        """Take a node's word, in place of what it said before.

        Args:
            endpoint: The endpoint as it is.
            node_id: The node.
            said: What it says.
        """
        known = {version.version for version in endpoint.versions}
        self._heard.setdefault(endpoint.name, {})[node_id] = tuple(each for each in said if each.version in known)


class InputsHeard:
    """What nodes know of what versions are asked: of each node its last word since the broker began."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, tuple[InputDrift, ...]]] = {}

    def of(self, endpoint: Endpoint) -> Asked:
        """What the nodes say of each version at which the endpoint answers by now."""
        homes = {version.version: endpoint.node_of(version) for version in endpoint.versions}
        found: dict[int, list[InputDrift]] = defaultdict(list)
        for node_id, said in sorted(self._heard.get(endpoint.name, {}).items()):
            for each in said:
                if node_id in (homes.get(each.version), *endpoint.replica_nodes):
                    found[each.version].append(each)
        return {version: tuple(said) for version, said in found.items()}

    def forget(self, endpoint: str) -> None:
        """Drop what was heard of an endpoint that is no more."""
        self._heard.pop(endpoint, None)

    def forget_node(self, node_id: str) -> None:
        """Drop what a node said that was removed."""
        for said in self._heard.values():
            said.pop(node_id, None)

    def note(self, endpoint: Endpoint, node_id: str, said: tuple[InputDrift, ...]) -> None:
        """Take a node's word, in place of what it said before; see :meth:`FeedbackHeard.note`."""
        known = {version.version for version in endpoint.versions}
        told = tuple(replace(each, node_id=node_id) for each in said if each.version in known)
        self._heard.setdefault(endpoint.name, {})[node_id] = told
