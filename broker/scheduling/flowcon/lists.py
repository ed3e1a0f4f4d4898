"""One pass of FlowCon over the jobs of a node: the New, Watching and Completing lists, and the limits.

Restated from the authors' code (Zheng et al., 2019), whose one-pass lag is kept: all limits are lifted in the pass
*after* the one in which the last job became Completing, since the lists are read before they are changed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.forecast.curve import ReportsSeen


class FlowconList(enum.Enum):
    """Where a job is."""

    NEW = "new"
    WATCHING = "watching"
    COMPLETING = "completing"


class FlowconRule(enum.Enum):
    """How limits follow from growth: by its share of all growth, or step by step from the present limit."""

    DIRECT = "direct"
    MULTIPLICATIVE = "multiplicative"


@dataclass(frozen=True, slots=True)
class FlowconRecord:
    """What is remembered about a job."""

    list: FlowconList = FlowconList.NEW  # where it is
    limit: float = 1.0  # what it may use, a fraction of the node in (0, 1] (L)
    growth: float | None = None  # its growth efficiency when it was last known (G), or None
    best: float = 0.0  # the largest growth efficiency so far
    largest: float = 0.0  # the largest absolute value reported so far
    seen: ReportsSeen | None = None  # number, time and epoch of the reports that the growth was measured on, or None
    fresh: bool = False  # whether the growth is from this pass


def one_pass(
    records: Sequence[FlowconRecord],
    *,
    alpha: float,
    beta: float | None = None,
    rule: FlowconRule = FlowconRule.DIRECT,
    scale_free: bool = False,
) -> list[FlowconRecord]:
    """The records of a node's jobs after a pass.

    Jobs whose growth is not known yet stay New and keep their limit. Those without a fresh growth stay on their list.

    Args:
        records: Before the pass, with their growths measured.
        alpha: Below this growth efficiency a job moves on to the next list.
        beta: The floor is ``1 / (beta * n)`` for n jobs; None for ``1 + 1/n``, hence a floor of ``1 / (n + 1)``.
        rule: How limits follow from growth.
        scale_free: Whether alpha is a fraction of the job's own best growth so far.
    """
    count = len(records)
    floor = 1 / (count + 1) if beta is None else 1 / (beta * count)
    all_were_completing = all(record.list is FlowconList.COMPLETING for record in records)
    moved = [_moved(record, alpha, scale_free=scale_free) for record in records]
    if all_were_completing:
        lifted = 1.0 if rule is FlowconRule.DIRECT else min(1.5 / count, 1.0)
        return [_limited(record, lifted) for record in moved]
    total = sum(record.growth or 0.0 for record in moved)
    if not 0 < total < math.inf:
        return moved
    limit = _direct if rule is FlowconRule.DIRECT else _multiplicative
    return [
        record if record.growth is None else _limited(record, limit(record, record.growth / total, floor))
        for record in moved
    ]


def _limited(record: FlowconRecord, limit: float) -> FlowconRecord:
    if limit == record.limit:
        return record
    return FlowconRecord(record.list, limit, record.growth, record.best, record.largest, record.seen, record.fresh)


def all_completing(records: Sequence[FlowconRecord]) -> bool:
    """Whether there is nothing left to favour: the loop may back off."""
    return all(record.list is FlowconList.COMPLETING for record in records)


def _moved(record: FlowconRecord, alpha: float, *, scale_free: bool) -> FlowconRecord:
    """The record on the list where it belongs."""
    if record.growth is None or not record.fresh:
        return record
    growth = record.growth / record.best if scale_free and record.best > 0 else record.growth
    if growth >= alpha:
        where = FlowconList.NEW
    elif record.list is FlowconList.NEW:
        where = FlowconList.WATCHING
    else:
        where = FlowconList.COMPLETING
    return record if where is record.list else replace(record, list=where)


def _direct(record: FlowconRecord, part: float, floor: float) -> float:
    if record.list is FlowconList.WATCHING:
        return record.limit
    return min(part, 1.0) if record.list is FlowconList.NEW else min(max(part, floor), 1.0)


def _multiplicative(record: FlowconRecord, part: float, floor: float) -> float:
    if record.list is FlowconList.WATCHING:
        return record.limit
    factor = 1 + part if record.list is FlowconList.NEW else 1 - part
    return min(max(record.limit * factor, floor), 1.0)
