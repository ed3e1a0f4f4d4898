"""What notebooks show: tables and curves as HTML without scripts, readable on a light and on a dark page.

Whatever is shown may be hostile: all of it is escaped here and nowhere else, and cut where it is long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tiercel.core.figures import number

_LINE = "1px solid rgba(128,128,128,0.4)"
_CELL = f'style="text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:{_LINE}"'
_TABLE = '<table style="border-collapse:collapse;color:inherit;background:none">'
_WIDTH, _HEIGHT = 480, 160
MOST_CHARACTERS = 300
MOST_ITEMS = 100
MOST_DRAWN = 1_000
_DEEPEST = 6


def table(rows: Sequence[Mapping[str, Any]], left_out: int = 0) -> str:
    """A row for each; the columns are those of the first."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th {_CELL}>{_text(name)}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td {_CELL}>{_value(each)}</td>' for each in row.values())}</tr>" for row in rows)
    more = f"<p>and {left_out} more.</p>" if left_out else ""
    return f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def detail(title: str, shown: Mapping[str, Any]) -> str:
    """Names and values in two columns; what is nested opens by a click. Empty ones are left out."""
    return f"<b>{_text(title)}</b>{_pairs(shown, 1)}"


def picture(values: Sequence[tuple[float, float]], targets: Sequence[float]) -> str:
    """A curve over time with a dashed line at each target; nothing where there is nothing to draw.

    Args:
        values: Seconds and values, in the order of time; those that are not finite are left out.
        targets: Values to be reached.
    """
    drawn = [(x, y) for x, y in values if math.isfinite(x) and math.isfinite(y)]
    drawn = drawn[:: max(1, -(-len(drawn) // MOST_DRAWN))]
    if not drawn:
        return ""
    lines = [target for target in targets if math.isfinite(target)]
    ys = [y for _, y in drawn] + lines
    end, low, high = max(drawn[-1][0], 1e-9), min(ys), max(ys)
    # Halved first: the difference of two finite numbers may be none.
    span = (high / 2 - low / 2) or 0.5

    def place(y: float) -> float:
        return _HEIGHT - 5 - (_HEIGHT - 10) * ((y / 2 - low / 2) / span)

    path = " ".join(f"{_WIDTH * max(0.0, x) / end:.1f},{place(y):.1f}" for x, y in drawn)
    dashes = "".join(
        f'<line x1="0" x2="{_WIDTH}" y1="{place(y):.1f}" y2="{place(y):.1f}" stroke="currentColor" '
        f'stroke-dasharray="4 4" stroke-opacity="0.5"><title>{number(y)}</title></line>'
        for y in lines
    )
    name = f"from {number(drawn[0][1])} to {number(drawn[-1][1])} in {end:.0f} s"
    return (
        f'<svg role="img" aria-label="{escape(name)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="display:block;color:inherit">{dashes}'
        f'<polyline fill="none" stroke="currentColor" stroke-width="2" points="{path}"/></svg>'
    )


def _pairs(shown: Mapping[str, Any], depth: int) -> str:
    rows = [
        f"<tr><th {_CELL}>{_text(name.replace('_', ' '))}</th><td {_CELL}>{_value(value, depth)}</td></tr>"
        for name, value in list(shown.items())[:MOST_ITEMS]
        if value not in (None, "", [], {})
    ]
    return f"{_TABLE}{''.join(rows)}</table>"


def _value(value: Any, depth: int = 1) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return escape(number(value))
        case dict() | list() if depth >= _DEEPEST:
            return "…"
        case dict():
            return _folded(f"{len(value)} fields", _pairs(value, depth + 1))
        case list() if any(isinstance(each, dict | list) for each in value):
            items = "".join(f"<li>{_value(each, depth + 1)}</li>" for each in value[:MOST_ITEMS])
            return _folded(f"{len(value)} items", f"<ol>{items}</ol>")
        case list():
            return _text(", ".join(map(str, value[:MOST_ITEMS])))
    return _text(value)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _text(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…")
