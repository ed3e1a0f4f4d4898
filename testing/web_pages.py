"""The dashboard in a real browser, Debian's Chromium; what goes wrong in a page is kept, and who it asked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright, expect

from testing.needs import need

CHROMIUM: Final = Path("/usr/bin/chromium")
WAIT_SECONDS: Final = 60.0
"""Generous: it only decides how long a broken test takes."""
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 844)
# What the browser says of each answer that is an error: pages show it in their own words.
_ANSWERS = "Failed to load resource"


@contextlib.asynccontextmanager
async def running_chromium() -> AsyncIterator[Browser]:
    """A browser without a window."""
    need(CHROMIUM.exists(), "Chromium", "chromium")
    async with async_playwright() as playwright:
        # Without a sandbox of its own, which root may not have and containers do not let others have.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """A page of the dashboard, signed in.

    Attributes:
        problems: What the page logged as an error, but for answers that say no, and what it did not catch.
        hosts: Whom it asked.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(WAIT_SECONDS * 1000)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._asked)

    async def show(self, view: str) -> None:
        """Go to a view, such as ``jobs/ID``; without loading the page anew if it is there already."""
        await self.page.goto(f"{self.url}/#/{view}")
        await self.page.locator("h1").first.wait_for()

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_ANSWERS):
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)


async def confirm(page: Page, action: str) -> None:
    """Press a button of a view, and then the one of the dialog that asks."""
    await page.get_by_role("button", name=action, exact=True).click()
    await page.locator("dialog[open] button[type=submit]").click()


async def refused(page: Page, words: str | re.Pattern[str]) -> None:
    """The dialog says why not, and can be left."""
    await expect(page.locator("dialog[open] [role=alert]")).to_contain_text(words)
    await page.get_by_role("button", name="Leave it").click()
    await expect(page.locator("dialog[open]")).to_have_count(0)


@contextlib.asynccontextmanager
async def open_tab(browser: Browser, address: str, token: str, **look: Any) -> AsyncIterator[Tab]:
    """A tab of a browser of its own that is signed in; at the end nothing may have gone wrong in it."""
    url = f"http://{address}"
    size = dict(zip(("width", "height"), look.pop("size", DESKTOP), strict=True))
    context = await browser.new_context(viewport=size, **look)  # type: ignore[arg-type] # it has these two keys
    try:
        if token:
            answer = await context.request.post(f"{url}/api/v1/session", data={"token": token}, headers={"Origin": url})
            assert answer.ok, await answer.text()
        tab = Tab(await context.new_page(), url)
        yield tab
        assert tab.problems == []
        assert tab.hosts <= {address, ""}, "a page asked somebody else"
    finally:
        await context.close()
