"""Labels beside points of a plot, placed so that they do not cover each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

MARGIN_PIXELS = 3.0
POINT_PIXELS = 8.0


@dataclass(frozen=True, slots=True)
class Label:
    """A text that belongs to a point, in data coordinates."""

    panel: Axes
    x: float
    y: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Place:
    offset: tuple[float, float]
    horizontal: Literal["left", "right", "center"]
    vertical: Literal["top", "bottom"]


_PLACES = [
    _Place((sign * distance, up * (5 + distance / 4)), "left" if sign > 0 else "right", "bottom" if up > 0 else "top")
    for distance in (4, 14, 28, 44)
    for up in (1, -1)
    for sign in (-1, 1)
]


def place_labels(figure: Figure, labels: Iterable[Label]) -> None:
    """Write labels, each at the nearest place where it covers no other, no point, and stays within its panel.

    Args:
        figure: Everything else is drawn already.
        labels: Those that come first get the better places.
    """
    # The layout has to be known before anything can be measured.
    figure.draw_without_rendering()
    wanted = list(labels)
    points = [_around(label) for label in wanted]
    texts: list[Bbox] = []
    for number, label in enumerate(wanted):
        texts.append(_write(label, [*texts, *points[:number], *points[number + 1 :]]))


def _around(label: Label) -> Bbox:
    x, y = label.panel.transData.transform((label.x, label.y))
    return Bbox.from_extents(x - POINT_PIXELS, y - POINT_PIXELS, x + POINT_PIXELS, y + POINT_PIXELS)


def _write(label: Label, taken: list[Bbox]) -> Bbox:
    """Write a label where nothing is taken; returns what it takes itself."""
    text = label.panel.annotate(
        label.text,
        (label.x, label.y),
        xytext=(0, 0),
        textcoords="offset points",
        color=label.colour,
        fontweight="bold",
        fontsize=9,
        # The place is this module's business; layout must not move panels for it.
        in_layout=False,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )
    for place in _PLACES:
        text.set_position(place.offset)
        text.set_horizontalalignment(place.horizontal)
        text.set_verticalalignment(place.vertical)
        box = text.get_window_extent().padded(MARGIN_PIXELS)
        within = label.panel.bbox.padded(MARGIN_PIXELS)
        inside = within.containsx(box.x0) and within.containsx(box.x1) and within.containsy(box.y0)
        if inside and not any(box.overlaps(other) for other in taken):
            break
    return box
