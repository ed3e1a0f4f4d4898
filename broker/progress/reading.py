"""Who may read which topic: pure."""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest

from tiercel.broker.progress.topics import READABLE

_LONGEST_FILTER = 512


def may_read(tenant: str, topic: str) -> bool:
    """Whether a message on ``topic`` is for the tenant: its own, or of nodes and the broker."""
    return topic.startswith(_readable(tenant))


def may_subscribe(tenant: str, topic_filter: str) -> bool:
    """Whether a filter is one, and takes in anything that the tenant may read.

    What else it takes in (``tiercel/#`` takes in all tenants) is left out message by message.
    """
    return (
        len(topic_filter) <= _LONGEST_FILTER
        and _is_filter(topic_filter)
        and any(_overlap(topic_filter, f"{root}#") for root in _readable(tenant))
    )


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic, which has no wildcards, belongs to a filter."""
    return _overlap(topic_filter, topic)


@lru_cache(maxsize=1024)
def _readable(tenant: str) -> tuple[str, ...]:
    """How all topics begin that the tenant may read."""
    return tuple(topics.format(tenant=tenant).removesuffix("#") for topics in READABLE)


def _is_filter(text: str) -> bool:
    levels = text.split("/")
    if not text or "#" in levels[:-1]:
        return False
    return all(level in {"+", "#"} or not {"+", "#"} & set(level) for level in levels)


def _overlap(one: str, other: str) -> bool:
    """Whether there is a topic that belongs to both filters."""
    for left, right in zip_longest(one.split("/"), other.split("/")):
        if "#" in (left, right):
            return True
        if left is None or right is None:
            return False
        if left != right and "+" not in (left, right):
            return False
    return True
