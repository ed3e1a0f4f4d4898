"""What notebooks show of things whose names are hostile, and of numbers that are none."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tiercel.core.html import MOST_CHARACTERS, MOST_ITEMS, detail, picture, table

HOSTILE = "\"'><img src=x onerror=alert(1)><script>alert(1)</script>&amp;"
ALLOWED = frozenset(["table", "thead", "tbody", "tr", "th", "td", "b", "p", "details", "summary", "ol", "li"])


class Seen(HTMLParser):
    """The elements and attributes that a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "shown",
    [
        detail(HOSTILE, {HOSTILE: HOSTILE, "list": [HOSTILE], "deep": {HOSTILE: [{HOSTILE: HOSTILE}]}}),
        table([{HOSTILE: HOSTILE, "many": [HOSTILE, {HOSTILE: HOSTILE}]}], 3),
    ],
)
def test_what_is_hostile_is_text_and_nothing_else(shown: str) -> None:
    seen = Seen(shown)
    assert seen.tags <= ALLOWED
    assert seen.attributes <= {"style"}
    assert HOSTILE in seen.text


def test_no_colour_is_set_that_one_of_light_and_dark_hides() -> None:
    shown = detail("a", {"b": {"c": 1}}) + table([{"a": 1}]) + picture([(0, 1), (1, 2)], [1.5])
    assert not re.search(r"(?<!-)\b(color|fill|stroke)\b[:=]\"?+(?!inherit|currentColor|none)", shown)
    assert "background:none" in shown


def test_what_is_long_is_cut() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5_000):
        nested = {"in": nested}
    assert len(detail("a", nested)) < 50_000
    shown = detail("x" * 10_000, {f"{n}": ["y" * 10_000] * 1_000 for n in range(1_000)})
    assert len(shown) < MOST_ITEMS * (MOST_CHARACTERS + 1_000)


@pytest.mark.parametrize(
    "values",
    [
        [(0.0, float("nan")), (1.0, float("inf"))],
        [],
    ],
)
def test_a_curve_without_a_number_is_not_drawn(values: list[tuple[float, float]]) -> None:
    assert picture(values, [float("nan")]) == ""


@pytest.mark.parametrize("y", [0.0, -1.7e308, 1.7e308, 5e-324])
def test_every_number_has_a_place_in_the_picture(y: float) -> None:
    shown = picture([(0.0, y), (0.0, -y), (3.0, y)], [1.7e308, float("inf")])
    numbers = [float(n) for n in re.findall(r"points=\"(.*?)\"", shown)[0].replace(",", " ").split()]
    assert len(numbers) == 6
    assert all(0 <= n <= 480 for n in numbers)
