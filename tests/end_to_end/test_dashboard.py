"""The dashboard's pages in a real browser, beside a real broker, agent and training."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, tiercel
from testing.web_pages import PHONE, WAIT_SECONDS, Tab, open_tab, running_chromium
from tiercel import JobState
from tiercel.broker.client.state_dir import read_token

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

expect.set_options(timeout=WAIT_SECONDS * 1000)
# It learns slowly enough to be looked at.
SLOW = ("--step-sleep-seconds", "0.05")
ENDLESS: dict[str, Any] = {"arguments": (*SLOW, "--epochs", "100000"), "max_epochs": 100_000}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, shared_product: Product) -> AsyncIterator[Tab]:
    product = shared_product
    async with open_tab(browser, product.addresses["dashboard"], read_token(product.state_dir, "alice")) as tab:
        yield tab
        # No view loaded the page anew behind its reader's back.
        assert await tab.page.evaluate("performance.getEntriesByType('navigation').length") == 1


async def test_what_happens_is_seen_as_it_happens_over_a_restart_of_the_broker(
    browser: Browser, shared_product: Product
) -> None:
    product = shared_product
    link = await tiercel("dashboard", "--no-open", state_dir=product.state_dir, tenant="alice")
    async with open_tab(browser, product.addresses["dashboard"], "") as tab, client_of(product) as alice:
        page = tab.page
        await page.goto(link.output.strip())
        await expect(page.get_by_text("Nothing trains")).to_be_visible()
        await page.evaluate("window.here = true")
        assert page.url.endswith("#/now"), "the code of the link stays in the address"

        first = await alice.submit(digits_job(targets=(0.70, 0.93), arguments=SLOW))
        news = page.get_by_role("list", name=re.compile("the newest first"))
        await expect(news.get_by_text(re.compile(r"has \d+ % of local"))).not_to_have_count(0)
        second = await alice.submit(digits_job("other", targets=(0.999,), **ENDLESS))
        shares = page.get_by_role("img", name=re.compile(r"^CPU, .*: digits \d+ %, other \d+ %"))
        await expect(shares).to_be_visible()
        serving = page.get_by_role("group", name="Endpoints that answer")
        await expect(news.get_by_text(re.compile(r"tier 1 \(0\.7\) delivered: version 1 answers"))).to_be_visible()
        await expect(serving.get_by_role("row", name=re.compile("digits 1 "))).to_be_visible()

        await product.kill()
        await expect(page.get_by_text("The broker does not answer.")).to_be_visible()
        await product.start()
        await page.get_by_label("Token").fill(read_token(product.state_dir, "alice"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".connection")).to_have_text(re.compile("live"))
        await expect(page.get_by_text("The broker does not answer.")).to_have_count(0)
        await expect(serving.get_by_role("row", name=re.compile("digits 2 "))).to_be_visible()
        assert (await first.wait(JOB_SECONDS)).state is JobState.COMPLETED
        await expect(page.get_by_role("group", name="Jobs that train").get_by_text("digits")).to_have_count(0)
        assert await page.evaluate("window.here"), "the page was loaded anew"
        await second.cancel()
        await second.wait(JOB_SECONDS)


async def delivered(product: Product) -> None:
    """The endpoint digits has two versions, of which the newest answers."""
    async with client_of(product) as alice:
        found = [endpoint for endpoint in await alice.list_endpoints() if endpoint.name == "digits"]
        if not found or len(found[0].versions) < 2:
            job = await (await alice.submit(digits_job(targets=(0.70, 0.93)))).wait(JOB_SECONDS)
            assert job.state is JobState.COMPLETED, job.reason


VIEWS = ("now", "jobs", "endpoints", "endpoints/digits", "compare", "what-if", "audit", "usage", "nothing")
AXE = Path(__file__).parents[1] / "data" / "axe-core" / "axe.min.js"
# Everything once, and what colours change again.
LOOKS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"color_scheme": "light"}, {}),
    ({"color_scheme": "dark"}, {"runOnly": ["color-contrast"]}),
    ({"size": PHONE, "reduced_motion": "reduce"}, {"runOnly": ["color-contrast", "scrollable-region-focusable"]}),
)


@pytest.mark.parametrize(("look", "rules"), LOOKS, ids=["light", "dark", "phone"])
async def test_no_view_has_anything_that_axe_finds(
    browser: Browser, shared_product: Product, look: dict[str, Any], rules: dict[str, Any]
) -> None:
    product = shared_product
    await delivered(product)
    async with client_of(product) as alice:
        (job, *_) = [job for job in await alice.list_jobs() if job.spec.endpoint == "digits"]
    token = read_token(product.state_dir, "alice")
    found: dict[str, Any] = {}
    async with open_tab(browser, product.addresses["dashboard"], token, **look) as tab:
        await tab.page.goto(tab.url)
        await tab.page.evaluate(AXE.read_text())
        for view in (
            *VIEWS,
            f"jobs/{job.id}",
            "endpoints/digits",
            f"compare?jobs={job.id}",
            "nothing",
            "jobs/nobody's",
        ):
            await tab.show(view)
            await expect(tab.page.locator(".spinner")).to_have_count(0)
            told = await tab.page.evaluate("rules => axe.run(rules)", rules)
            found |= {f"{view}: {each['id']}": [node["html"] for node in each["nodes"]] for each in told["violations"]}
            wide = await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{view} is wider than the screen"
    async with open_tab(browser, product.addresses["dashboard"], "", **look) as tab:
        await tab.page.goto(tab.url)
        await tab.page.get_by_role("heading", name="Sign in to Tiercel").wait_for()
        await tab.page.evaluate(AXE.read_text())
        told = await tab.page.evaluate("rules => axe.run(rules)", rules)
        found |= {f"sign in: {each['id']}": [node["html"] for node in each["nodes"]] for each in told["violations"]}
    assert found == {}
