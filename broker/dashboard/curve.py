"""A curve with as many points as can be seen: of each column of pixels the least and the greatest."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")


def decimated(points: Sequence[_T], width: int, at: Callable[[_T], float], value: Callable[[_T], float]) -> list[_T]:
    """The points that are drawn, in their order: at most two for each column, so that no peak is lost.

    Args:
        points: By time.
        width: How many columns there are, > 0.
        at: When a point is.
        value: What it says.
    """
    if len(points) <= 2 * width:
        return list(points)
    begin = at(points[0])
    step = (at(points[-1]) - begin) / width
    if step <= 0:
        return [points[-1]]

    def column(place: int) -> int:
        return min(width - 1, int((at(points[place]) - begin) / step))

    kept: list[int] = []
    for _, group in groupby(range(len(points)), column):
        places = list(group)
        values = [value(points[place]) for place in places]
        kept += sorted({places[values.index(min(values))], places[values.index(max(values))]})
    return [points[place] for place in kept]
