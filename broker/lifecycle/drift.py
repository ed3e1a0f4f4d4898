"""Whether versions are asked something else than at first, as pure steps: by the word of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.events import InputsJudged

if TYPE_CHECKING:
    from tiercel.core.drift import InputDrift
    from tiercel.core.endpoints import Endpoint

Asked = Mapping[int, tuple["InputDrift", ...]]
"""What nodes know of what an endpoint's versions are asked, by number."""


def judged(endpoint: Endpoint, asked: Asked, now: float) -> tuple[Endpoint, list[InputsJudged]]:
    """Judge what the versions that answer are asked.

    It is something else once one node says so, and as it was once all nodes that can say do. While none can, it stays
    as it was.

    Args:
        endpoint: The endpoint as it is.
        asked: What its nodes know.
        now: Seconds since the Unix epoch.

    Returns:
        The endpoint, the same object where nothing is other than before, and what there is to tell.
    """
    known = {version.version for version in endpoint.versions}
    drifted, news = [each for each in endpoint.drifted if each in known], []
    for version in endpoint.live:
        said = [each for each in asked.get(version.version, ()) if each.rows]
        is_off, was_off = any(each.drifted for each in said), version.version in drifted
        if not said or is_off == was_off:
            continue
        drifted = [each for each in drifted if each != version.version] + [version.version] * is_off
        news.append(InputsJudged(endpoint.name, endpoint.tenant, now, is_off, worst_of(said)))
    after = tuple(drifted)
    return (endpoint if after == endpoint.drifted else replace(endpoint, drifted=after)), news


def worst_of(said: Iterable[InputDrift]) -> InputDrift:
    """The word of the node where a version is asked what is farthest off; of at least one."""
    return max(said, key=lambda each: (each.drifted, each.farthest[0].distance if each.farthest else 0.0))
