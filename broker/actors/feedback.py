"""How often versions are right in use, as nodes hear it from applications, beside what was promised of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.events import PromiseJudged
from tiercel.core.feedback import AccuracyInUse, VersionFeedback
from tiercel.core.jobs import Direction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.endpoints import Endpoint, Version

# Before fewer rows nobody is alarmed.
LEAST_ROWS = 30


class FeedbackHeard:
    """What was heard since the broker began: of each node its last word, of versions that their endpoints know."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, tuple[VersionFeedback, ...]]] = {}
        # Versions that were found below what was promised, by endpoint.
        self._below: dict[str, frozenset[int]] = {}

    def of(self, endpoint: str) -> Mapping[int, VersionFeedback]:
        """What was heard of each version of an endpoint, at all nodes together."""
        found: dict[int, VersionFeedback] = {}
        for said in self._heard.get(endpoint, {}).values():
            for each in said:
                before = found.get(each.version, VersionFeedback(each.version, 0, 0))
                found[each.version] = VersionFeedback(each.version, before.rows + each.rows, before.right + each.right)
        return found

    def note(
        self, endpoint: Endpoint, node_id: str, said: tuple[VersionFeedback, ...], now: float
    ) -> list[PromiseJudged]:
        """Take a node's word; returns what there is to tell of promises that are kept no more, or again.

        A version is below what was promised once all of its interval is, and kept again once its accuracy is there.

        Args:
            endpoint: The endpoint as it is.
            node_id: The node.
            said: What it says, in place of what it said before.
            now: Seconds since the Unix epoch.
        """
        known = {version.version for version in endpoint.versions}
        self._heard.setdefault(endpoint.name, {})[node_id] = tuple(each for each in said if each.version in known)
        heard, below, news = self.of(endpoint.name), self._below.get(endpoint.name, frozenset()), []
        for version in endpoint.live:
            promised, feedback = promised_of(version), heard.get(version.version)
            if promised is None or feedback is None or feedback.rows < LEAST_ROWS:
                continue
            in_use, was_below = AccuracyInUse.of(feedback), version.version in below
            if in_use.accuracy >= promised if was_below else in_use.high < promised:
                below ^= {version.version}
                about = (endpoint.name, endpoint.tenant, now, version.version)
                news.append(PromiseJudged(*about, promised, in_use, kept=was_below))
        self._below[endpoint.name] = below & known
        return news


def promised_of(version: Version) -> float | None:
    """The accuracy that was promised of a version, by its tier or by whoever deployed it; None where none was."""
    promised = version.value if version.deployed_by else version.target
    is_one = version.direction is Direction.MAX and promised is not None and 0.0 < promised <= 1.0
    return promised if is_one else None
