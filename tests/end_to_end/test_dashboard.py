"""The dashboard's pages in a real browser, beside a real broker, agent and training."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from testing import figures, onnx_models
from testing.axe import AXE, LOOKS, VIEWS, to_look, what_axe_finds
from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, tiercel
from testing.web_pages import PHONE, WAIT_SECONDS, Tab, confirm, open_tab, refused, running_chromium
from tiercel import JobState
from tiercel.broker.client.state_dir import read_token

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

expect.set_options(timeout=WAIT_SECONDS * 1000)
# A PNG of two by two pixels, black and white.
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVR4nGNg+M/wnwEABgAB/4/x/JoAAAAASUVORK5CYII="
)
# It learns slowly enough to be looked at.
SLOW = ("--step-sleep-seconds", "0.05")
ENDLESS: dict[str, Any] = {"arguments": (*SLOW, "--epochs", "100000"), "max_epochs": 100_000}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alices(browser: Browser, shared_product: Product) -> AsyncIterator[Tab]:
    product = shared_product
    async with open_tab(browser, product.addresses["dashboard"], read_token(product.state_dir, "alice")) as tab:
        await tab.show("now")
        await tab.page.evaluate("window.here = true")
        yield tab


@pytest_asyncio.fixture(loop_scope="module")
async def tab(alices: Tab) -> AsyncIterator[Tab]:
    """Alice's, where she goes from view to view through all tests."""
    yield alices
    assert await alices.page.evaluate("window.here"), "a view loaded the page anew"
    assert alices.problems == []


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
        shares = page.get_by_role("img", name=re.compile(r"^CPU, .*: digits [< \d]+ %, other [< \d]+ %"))
        await expect(shares).to_be_visible()
        serving = page.get_by_role("group", name="Endpoints that answer")
        await expect(news.get_by_text(re.compile(r"tier 1 \(0\.7\) delivered: version 1 answers"))).to_be_visible()
        await expect(serving.get_by_role("row", name=re.compile("digits 1 "))).to_be_visible()

        await product.kill()
        await expect(page.get_by_text("The broker does not answer.")).to_be_visible()
        await product.start()
        await expect(page.locator(".connection")).to_have_text(re.compile("live"))
        await expect(page.get_by_text("The broker does not answer.")).to_have_count(0)
        await expect(serving.get_by_role("row", name=re.compile("digits 2 "))).to_be_visible()
        assert (await first.wait(JOB_SECONDS)).state is JobState.COMPLETED
        await expect(page.get_by_role("group", name="Jobs that train").get_by_text("digits")).to_have_count(0)
        assert await page.evaluate("window.here"), "the page was loaded anew"
        await second.cancel()
        await second.wait(JOB_SECONDS)


async def test_each_action_on_a_job_is_done_or_says_why_not(tab: Tab, shared_product: Product) -> None:
    page = tab.page
    async with client_of(shared_product) as alice:
        job = await alice.submit(digits_job("acted", targets=(0.999,), **ENDLESS))
        await tab.show(f"jobs/{job.id}")
        state = page.locator(".subtitle .state")
        await expect(state).to_have_text(re.compile("running"))
        await expect(page.get_by_role("img", name=re.compile(r"^accuracy of acted\. Latest 0"))).to_be_visible()
        await page.get_by_role("button", name="Priority", exact=True).click()
        await page.get_by_label("Priority, -100 to 100").fill("7")
        await page.get_by_role("button", name="Set priority").click()
        await expect(page.locator(".said")).to_have_text("acted has another priority.")
        await expect(page.locator("dt:has-text('Priority') + dd")).to_have_text("7")
        await confirm(page, "Suspend")
        await expect(state).to_have_text(re.compile("suspended"))
        await confirm(page, "Resume")
        await expect(state).to_have_text(re.compile("running"))

        for action in ("Suspend", "Cancel"):
            await page.route(f"**/{action.lower()}", lambda route: route.abort())
            await confirm(page, action)
            await refused(page, "The broker does not answer.")
            await page.unroute(f"**/{action.lower()}")
        await page.get_by_role("button", name="Priority", exact=True).click()
        await page.get_by_label("Priority, -100 to 100").fill("101")
        await page.get_by_role("button", name="Set priority").click()
        assert not await page.get_by_label("Priority, -100 to 100").evaluate("field => field.validity.valid")
        await page.get_by_role("button", name="Leave it").click()
        await confirm(page, "Cancel")
        await expect(state).to_have_text(re.compile("cancelled"))
        await expect(page.locator(".note")).to_have_text(re.compile(r"cancelled after .* Retry goes on"))
        await expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
        await page.route("**/retry", lambda route: route.fulfill(status=501, json={"code": "unimplemented"}))
        await confirm(page, "Retry")
        await refused(page, "This broker cannot do that yet.")
        await page.unroute("**/retry")
        blocker = await alice.submit(digits_job("acted", targets=(0.999,), **ENDLESS))
        await confirm(page, "Retry")
        await refused(page, "acted")
        await blocker.cancel()
        await blocker.wait(JOB_SECONDS)
        await confirm(page, "Retry")
        await expect(state).to_have_text(re.compile("running"))
        await job.cancel()
        await job.wait(JOB_SECONDS)


async def test_versions_are_chosen_or_it_says_why_not(tab: Tab, shared_product: Product) -> None:
    page = tab.page
    await delivered(shared_product)
    await tab.show("endpoints/digits")
    answers = page.locator(".subtitle")
    await expect(answers).to_have_text(re.compile("version 2 answers"))
    await confirm(page, "Roll back")
    await expect(page.locator(".said")).to_have_text("digits is rolled back.")
    await expect(answers).to_have_text(re.compile("version 1 answers, pinned"))
    await confirm(page, "Roll back")
    await refused(page, re.compile("version"))
    await confirm(page, "Promote")
    await expect(answers).to_have_text(re.compile("version 2 answers"))
    versions = page.get_by_role("group", name="Versions, the newest first")
    await expect(versions.get_by_role("row")).to_have_count(3)
    for version in (1, 2):
        await page.get_by_label(f"Compare version {version}").check()
    await expect(
        page.get_by_role("group", name="What differs").get_by_role("row", name=re.compile("^Measured 0"))
    ).to_be_visible()
    await confirm(page, "Pin")
    await expect(answers).to_have_text(re.compile("version 2 answers, pinned"))
    await confirm(page, "Keep")
    await expect(page.locator(".said")).to_have_text("It is set how many versions of digits keep their files.")
    await confirm(page, "Remove version 1")
    await expect(versions.get_by_role("row", name=re.compile(" 1 no .* gone$"))).to_be_visible()
    await page.get_by_role("button", name="Pin", exact=True).click()
    await page.locator("dialog[open] input").fill("1")
    await page.locator("dialog[open] button[type=submit]").click()
    await refused(page, "version")
    await confirm(page, "Promote")
    await expect(answers).not_to_have_text(re.compile("pinned"))


async def test_an_endpoint_answers_numbers_and_images_or_it_says_what_it_takes(
    tab: Tab, shared_product: Product
) -> None:
    page = tab.page
    await delivered(shared_product)
    await tab.show("endpoints/digits")
    await page.get_by_role("button", name="Ask", exact=True).wait_for()
    numbers = page.get_by_label("Numbers, in rows one after the other")
    await numbers.fill("1, 2, three")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.locator(".problem")).to_contain_text("“three” is not a number")
    await numbers.fill("1, 2")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.locator(".problem")).to_contain_text("takes 64 numbers or a multiple of them, and these are 2")
    image = {"name": "bars.png", "mimeType": "image/png", "buffer": PICTURE}
    await page.get_by_label("Drop an image here, or choose one").set_input_files(image)  # type: ignore[arg-type]
    await page.get_by_label("Values").select_option("0 to 16")
    await expect(numbers).to_have_value(re.compile(r"^(\d+, ){63}\d+$"))
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.locator(".answer")).to_contain_text("Answered by version 2")
    await expect(page.locator(".answer .part")).to_have_count(10)


async def test_an_endpoint_generates_as_it_is_watched_until_it_is_stopped_or_says_why_not(
    tab: Tab, shared_product: Product, tmp_path: Path
) -> None:
    page, file = tab.page, tmp_path / "letters.onnx"
    file.write_bytes(onnx_models.letters())
    async with client_of(shared_product) as alice:
        await alice.deploy(file, "letters")
    await tab.show("endpoints/letters")
    ask, most = page.get_by_role("button", name="Ask", exact=True), page.get_by_label("Tokens of the answer at most")
    answer, said = page.get_by_label("Answer", exact=True), page.locator(".ask ~ [role=status]")
    await page.get_by_label("Prompt").fill("a")
    await ask.click()
    await expect(answer).to_have_text("bcdefghijklmnopqrstuvwxy")
    await expect(said).to_have_text(re.compile(r"^24 tokens by version 1 in .* It came to its end\.$"))
    await most.fill("3")
    await ask.click()
    await expect(answer).to_have_text("bcd")
    await expect(said).to_contain_text("It is as long as it may be.")
    await most.fill("5000")
    await ask.click()
    await expect(page.locator(".problem")).to_contain_text("max_tokens must be a whole number from 1 to ")
    await page.route("**/generate", lambda _: None)  # it is held up until somebody has enough
    await ask.click()
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect(said).to_have_text("You stopped it.")
    await expect(ask).to_be_enabled()


async def delivered(product: Product) -> None:
    """The endpoint digits has two versions, of which the newest answers."""
    async with client_of(product) as alice:
        found = [endpoint for endpoint in await alice.list_endpoints() if endpoint.name == "digits"]
        if not found or len(found[0].versions) < 2:
            job = await (await alice.submit(digits_job(targets=(0.70, 0.93)))).wait(JOB_SECONDS)
            assert job.state is JobState.COMPLETED, job.reason


async def test_who_may_only_look_has_nothing_to_press_and_who_is_nobody_is_told_so(
    browser: Browser, shared_product: Product
) -> None:
    product = shared_product
    await delivered(product)
    made = await tiercel(
        *("token", "create", "looker", "--tenant", "alice", "--role", "viewer", "--json"), state_dir=product.state_dir
    )
    async with open_tab(browser, product.addresses["dashboard"], "") as tab:
        page = tab.page
        await page.goto(f"{tab.url}/#/endpoints/digits")
        await page.get_by_label("Token").fill("made-up")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("token")
        await page.get_by_label("Token").fill(made.content["token"])
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="digits")).to_be_visible()
        await expect(page.get_by_text("alice · viewer")).to_be_visible()
        await expect(page.get_by_role("button", name="Roll back")).to_have_count(0)
        # All of it by keyboard.
        await page.keyboard.press("j")
        await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("nothing like it")
        await expect(page.get_by_text("No job is like that")).to_be_visible()
        assert page.url.endswith("#/jobs?find=nothing+like+it"), "the view's state is not in its address"
        await page.get_by_role("searchbox").evaluate("field => field.blur()")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.route("**/quotas", lambda route: route.abort())
        await page.keyboard.press("u")
        await expect(page.get_by_role("heading", name="Usage", level=1)).to_be_visible()
        await expect(page.locator(".problem")).to_contain_text("The broker does not answer.")
        await page.unroute("**/quotas")
        await page.get_by_role("button", name="Try again").click()
        quota = page.get_by_role("group", name="What alice may use").get_by_role("row")
        await expect(quota.filter(has_text="Unfinished jobs")).to_have_text(re.compile(r"jobs\s*0\s*(\d+)\s*\1"))
        for name in ("CPU time", "Accelerator time"):
            row = quota.filter(has_text=name)
            await expect(row).to_have_text(re.compile(rf"{name}\s*[\d.]+ s\s*no limit"))
        await tab.show("audit")
        await expect(page.get_by_text("The audit log is the operator")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_an_operator_sees_machines_and_who_did_what_and_no_tenants_jobs(
    browser: Browser, shared_product: Product
) -> None:
    product = shared_product
    await delivered(product)
    token = (product.state_dir / "operator.token").read_text().strip()
    async with open_tab(browser, product.addresses["dashboard"], token) as tab:
        page = tab.page
        await tab.show("now")
        await expect(page.get_by_role("heading", name="local")).to_be_visible()
        views = page.get_by_role("navigation", name="Views").get_by_role("link")
        await expect(views).to_have_text(["Now", "What if", "Audit", "Usage"])
        await page.get_by_role("button", name="Change the policy").click()
        await page.get_by_label("Policy").select_option("fair")
        await page.get_by_role("button", name="Set policy").click()
        await expect(page.locator(".policy")).to_have_text("policy fair")
        await tab.show("audit")
        log = page.get_by_role("group", name="Audit log, the newest first")
        await expect(log.get_by_text("JobsService.SubmitJob")).not_to_have_count(0)
        await tab.show("usage")
        await expect(page.get_by_role("group", name="Usage by tenant").get_by_text("alice")).to_be_visible()
        for tenant in ("alice", "bob"):
            await expect(page.get_by_role("group", name=f"What {tenant} may use")).to_be_visible()
        await tab.show("jobs")
        await expect(page.get_by_text("Jobs and endpoints are their tenants")).to_be_visible()


async def test_what_if_is_answered_and_long_names_take_no_room_of_others(tab: Tab, shared_product: Product) -> None:
    page, name = tab.page, "a name that somebody made of a branch, a data set, the day and the hour of it"
    async with client_of(shared_product) as alice:
        job = await alice.submit(digits_job("asked", name=name, targets=(0.999,), **ENDLESS))
        await tab.show(f"what-if?kind=priority&job={job.id}")
        await page.get_by_role("button", name="Predict").click()
        await expect(page.get_by_role("heading", name="What would be different")).to_be_visible()
        await expect(page.get_by_text(re.compile(r"futures? simulated in"))).to_be_visible()
        hidden = "tables => tables.map(table => table.scrollWidth - table.clientWidth).filter(pixels => pixels > 0)"
        for view in ("jobs", f"compare?jobs={job.id}", "usage"):
            await tab.show(view)
            await expect(page.get_by_role("link", name=name)).to_be_visible()
            assert await page.locator(".scroll").evaluate_all(hidden) == [], view
        await job.cancel()
        await job.wait(JOB_SECONDS)


async def test_tabs_of_a_browser_share_one_stream_and_one_that_goes_leaves_it_to_another(
    browser: Browser, shared_product: Product
) -> None:
    product, streams = shared_product, list[str]()
    token = read_token(product.state_dir, "alice")
    async with open_tab(browser, product.addresses["dashboard"], token) as tab, client_of(product) as alice:
        context = tab.page.context
        context.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
        await tab.show("now")
        await expect(tab.page.locator(".connection")).to_have_text(re.compile("live"))
        second = await context.new_page()
        await second.goto(f"{tab.url}/#/now")
        await expect(second.locator(".connection")).to_have_text(re.compile("live"))
        assert len(streams) == 1
        await tab.page.goto("about:blank")
        job = await alice.submit(digits_job("shared", targets=(0.5,)))
        await expect(second.get_by_role("link", name="shared").first).to_be_visible()
        await job.wait(JOB_SECONDS)
        await expect(second.get_by_text(re.compile(r"delivered: version 1 answers"))).to_be_visible()
        assert len(streams) == 2


async def test_curves_are_no_more_points_than_can_be_seen_and_lose_no_peak(tab: Tab) -> None:
    await tab.show("now")
    found = await tab.page.evaluate(figures.CURVES_OF_A_PAGE)
    assert found["lengths"] == [600]
    assert found["extremes"] == [[-100 - number, 100 + number] for number in range(50)]
    assert found["grown"] <= 1600
    assert (found["least"], found["greatest"], found["last"][0], found["ordered"]) == (-100, 100, 9999, True)


async def test_figures_read_as_those_of_the_broker_do(tab: Tab) -> None:
    await tab.show("now")
    assert await tab.page.evaluate(figures.READ_BY_A_PAGE, figures.GIVEN) == figures.READ


async def test_no_view_has_anything_that_axe_finds(browser: Browser, shared_product: Product) -> None:
    product = shared_product
    await delivered(product)
    async with client_of(product) as alice:
        (job, *_) = [job for job in await alice.list_jobs() if job.spec.endpoint == "digits"]
    token = read_token(product.state_dir, "alice")
    found: dict[str, Any] = {}
    async with open_tab(browser, product.addresses["dashboard"], token, size=PHONE) as tab:
        page = tab.page
        await page.goto(tab.url)
        await page.evaluate(AXE)
        for view in (*VIEWS, f"jobs/{job.id}", f"compare?jobs={job.id}"):
            for look in LOOKS:
                await to_look(page, look)
                if look is LOOKS[0]:
                    await tab.show(view)
                    await expect(page.locator(".spinner")).to_have_count(0)
                    dashes = page.locator(".stacks td:visible", has_text=re.compile("^\N{EN DASH}$"))
                    await expect(dashes).to_have_count(0)
                found |= await what_axe_finds(page, view, look)
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{view} is wider than the screen ({look.name})"
    async with open_tab(browser, product.addresses["dashboard"], "") as tab:
        await tab.page.goto(tab.url)
        await tab.page.get_by_role("heading", name="Sign in to Tiercel").wait_for()
        await tab.page.evaluate(AXE)
        for look in LOOKS:
            await to_look(tab.page, look)
            found |= await what_axe_finds(tab.page, "sign in", look)
    assert found == {}
