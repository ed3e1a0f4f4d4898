"""What axe finds wrong with a page, as people look at it who have a phone, a dark screen, or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import Page

from testing.web_pages import DESKTOP, PHONE

AXE: Final = (Path(__file__).parents[1] / "tests" / "data" / "axe-core" / "axe.min.js").read_text()
"""A script that a page has to run first."""


class Look(NamedTuple):
    """How a page is looked at, and what axe looks for then."""

    name: str
    size: tuple[int, int]
    media: dict[str, Any]
    rules: dict[str, Any]


VIEWS: Final = (
    "now",
    "jobs",
    "endpoints",
    "endpoints/digits",
    "endpoints/letters",
    "compare",
    "what-if",
    "audit",
    "usage",
    "nothing",
    "jobs/nobody's",
)
"""Of the dashboard as it is looked at; the last two are of nothing that is there."""

# What a small screen does, as which each view begins; what other colours change; everything.
LOOKS: Final = (
    Look("phone", PHONE, {"reduced_motion": "reduce"}, {"runOnly": ["scrollable-region-focusable"]}),
    Look("dark", DESKTOP, {"color_scheme": "dark"}, {"runOnly": ["color-contrast"]}),
    Look("light", DESKTOP, {"color_scheme": "light"}, {}),
)


async def to_look(page: Page, look: Look) -> None:
    """From now on the page is looked at like this."""
    await page.set_viewport_size(dict(zip(("width", "height"), look.size, strict=True)))  # type: ignore[arg-type]
    await page.emulate_media(**({"color_scheme": "light", "reduced_motion": "no-preference"} | look.media))


async def what_axe_finds(page: Page, view: str, look: Look) -> dict[str, list[str]]:
    """The elements that break a rule, by what they break."""
    # Of what is as it should be nobody reads the elements.
    told = await page.evaluate("rules => axe.run(rules)", look.rules | {"resultTypes": ["violations"]})
    return {
        f"{view}, {look.name}: {each['id']}": [node["html"] for node in each["nodes"]] for each in told["violations"]
    }
