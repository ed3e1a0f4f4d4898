"""How often versions are right in use, as nodes hear it from applications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.feedback import VersionFeedback

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    def note(self, endpoint: Endpoint, node_id: str, said: tuple[VersionFeedback, ...]) -> None:
        """Take a node's word, in place of what it said before.

        Args:
            endpoint: The endpoint as it is.
            node_id: The node.
            said: What it says.
        """
        known = {version.version for version in endpoint.versions}
        self._heard.setdefault(endpoint.name, {})[node_id] = tuple(each for each in said if each.version in known)
