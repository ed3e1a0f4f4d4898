"""Whether versions are as often right in use as they should be, as pure steps.

A version should be right as often as was promised of it, and as often as whoever wants it trained again says. It misses
that once all of the 95 % interval of its accuracy in use is below, and keeps it again once its accuracy is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.accuracy import accuracy_of
from tiercel.core.events import PromiseJudged
from tiercel.core.feedback import AccuracyInUse, VersionFeedback
from tiercel.core.retraining import Missed

if TYPE_CHECKING:
    from tiercel.core.endpoints import Endpoint, Version

Heard = Mapping[int, VersionFeedback]
"""What applications said of an endpoint's versions, by number."""

# Before fewer rows nobody is alarmed.
LEAST_ROWS = 30


def promised_of(version: Version) -> float | None:
    """The accuracy that was promised of a version, by its tier or by whoever deployed it; None where none was."""
    return accuracy_of(version.value if version.deployed_by else version.target, version.direction)


def in_use_of(version: int, heard: Heard) -> AccuracyInUse | None:
    """How often a version was right in use; None while too little was heard of it to say."""
    said = heard.get(version)
    return AccuracyInUse.of(said) if said is not None and said.rows >= LEAST_ROWS else None


def is_missed(endpoint: Endpoint, version: int, accuracy: float) -> bool:
    """Whether a version is less often right than it should be."""
    return any((each.version, each.accuracy) == (version, accuracy) for each in endpoint.missed)


def judged(endpoint: Endpoint, heard: Heard, now: float) -> tuple[Endpoint, list[PromiseJudged]]:
    """Judge the versions that answer.

    Args:
        endpoint: The endpoint as it is.
        heard: What applications said of its versions, by number.
        now: Seconds since the Unix epoch.

    Returns:
        The endpoint, the same object where nothing is other than before, and what there is to tell of promises.
    """
    known = {version.version for version in endpoint.versions}
    missed, news = [each for each in endpoint.missed if each.version in known], []
    for version in endpoint.live:
        in_use, promised = in_use_of(version.version, heard), promised_of(version)
        if in_use is None:
            continue
        for accuracy in _expected_of(version):
            before = next((m for m in missed if (m.version, m.accuracy) == (version.version, accuracy)), None)
            if before is None and in_use.high < accuracy:
                missed.append(Missed(version.version, accuracy, in_use.high))
            elif before is not None and in_use.accuracy >= accuracy:
                missed.remove(before)
            else:
                continue
            if accuracy == promised:
                about = (endpoint.name, endpoint.tenant, now, version.version)
                news.append(PromiseJudged(*about, accuracy, in_use, kept=before is not None))
    after = tuple(missed)
    return (endpoint if after == endpoint.missed else replace(endpoint, missed=after)), news


def _expected_of(version: Version) -> list[float]:
    """The accuracies that a version should reach: what was promised, and what starts a retraining."""
    below = version.retrain.below if version.retrain is not None else None
    return sorted({each for each in (promised_of(version), below) if each is not None})


def best_in_use(endpoint: Endpoint, version: int, heard: Heard) -> float | None:
    """What a version that misses what it should be is worth at best: the upper end of its interval in use, 95 %.

    None of any other version: what was measured when it was delivered stands.
    """
    ends = [each.high for each in endpoint.missed if each.version == version]
    if not ends:
        return None
    in_use = in_use_of(version, heard)
    return in_use.high if in_use is not None else min(ends)
