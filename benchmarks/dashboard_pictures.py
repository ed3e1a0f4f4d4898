"""Pictures of every view of the dashboard, light, dark and on a phone, while the demo's jobs train and are asked.

Usage: ``python -m benchmarks.dashboard_pictures`` (``make dashboard-pictures``); needs Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser

from benchmarks.demo_jobs import JOBS
from testing.application_process import ApplicationProcess
from testing.product import Product
from testing.web_pages import PHONE, Tab, open_tab, running_chromium
from tiercel import Client, JobHandle, JobSpec, Tier
from tiercel.broker.client.state_dir import read_token

OUTPUT: Final = Path(__file__).parents[1] / "build" / "dashboard"
TENANT: Final = "alice"
RATE: Final = 60.0
# Of the demo's jobs: what they reach late, or not at all.
LAST_TARGETS: Final = (0.98, 0.999, 0.999, 60.0)
OBJECTIVE_SECONDS: Final = 0.02
# Long enough that the curves and the delays have something to show.
SEEN_SECONDS: Final = 4.0
# Of the picture that documents show.
SHOWN: Final = (1280, 1180)
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"size": PHONE, "device_scale_factor": 2},
}


async def take_pictures(folder: Path) -> None:
    """Run the product and the demo's jobs, and take the pictures while they train."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "state"
        options = ("--runtime", "process", "--tenant", TENANT)
        async with (
            running_chromium() as browser,
            Product(state, folder / "up.log", options) as product,
            Client.from_state_dir(state, TENANT) as client,
            ApplicationProcess(product.addresses["serving_http"], _asked(), RATE, folder) as application,
            asyncio.TaskGroup() as group,
        ):
            asked = group.create_task(application.follow(lambda _: None))  # it stops where nobody listens
            async with open_tab(browser, product.addresses["dashboard"], read_token(state, TENANT)) as tab:
                await tab.show("now")
                await tab.page.get_by_text("Nothing trains").wait_for()
                await tab.page.screenshot(path=folder / "empty-light.png")
            await (await client.submit(_spec(0))).wait(timeout=180)  # so that there is something to forecast by
            jobs = [await client.submit(_spec(number)) for number in range(len(JOBS))]
            address, token = product.addresses["dashboard"], read_token(state, TENANT)
            await _follow(browser, address, token, jobs, folder)
            await jobs[0].cancel()
            await jobs[3].suspend()
            operator = (state / "operator.token").read_text().strip()
            views = _views(jobs)
            for name, look in LOOKS.items():
                async with open_tab(browser, address, token, **look) as tab:
                    for view, route in views.items():
                        await tab.show(route)
                        await asyncio.sleep(SEEN_SECONDS if name == "light" else 1.5)
                        await tab.page.screenshot(path=folder / f"{view}-{name}.png", full_page=True)
                    await _act(tab, folder, name)
                async with open_tab(browser, address, operator, **look) as tab:
                    for view in ("now", "audit", "usage"):
                        await tab.show(view)
                        await asyncio.sleep(1.5)
                        await tab.page.screenshot(path=folder / f"operator-{view}-{name}.png", full_page=True)
                async with open_tab(browser, address, "", **look) as tab:
                    await tab.page.goto(tab.url)
                    await tab.page.get_by_label("Token").wait_for()
                    await tab.page.screenshot(path=folder / f"sign-in-{name}.png")
            await _take_lost(browser, address, token, product, folder)
            asked.cancel()
            await application.stop()


async def _act(tab: Tab, folder: Path, name: str) -> None:
    """What is there once somebody pressed something: a dialog, two versions side by side, a prediction, an answer."""
    page, endpoint = tab.page, f"endpoints/{JOBS[0].endpoint}"
    await tab.show(endpoint)
    await page.get_by_role("button", name="Pin", exact=True).click()
    await page.screenshot(path=folder / f"dialog-{name}.png")
    await page.keyboard.press("Escape")
    for version in (1, 2):
        await page.get_by_label(f"Compare version {version}").check()
    await page.get_by_role("button", name="Random").click()
    await page.get_by_role("button", name="Ask", exact=True).click()
    await page.locator(".answer").wait_for()
    await page.get_by_role("group", name="What differs").wait_for()
    await page.evaluate("scrollTo(0, 0)")  # else the bar at the top is in the middle of the picture
    await page.screenshot(path=folder / f"asked-{name}.png", full_page=True)
    await tab.show("what-if")
    await page.get_by_role("button", name="Predict").click()
    await page.get_by_role("heading", name="What would be different").wait_for()
    await page.screenshot(path=folder / f"predicted-{name}.png", full_page=True)


async def _take_lost(browser: Browser, address: str, token: str, product: Product, folder: Path) -> None:
    """While the broker is away; what it was told last stays."""
    async with open_tab(browser, address, token) as tab:
        await tab.show("now")
        await tab.page.get_by_role("group", name="Endpoints that answer").wait_for()
        await product.kill()
        await tab.page.get_by_text("The broker does not answer.").wait_for()
        await tab.page.screenshot(path=folder / "lost-light.png")


def _asked() -> Sequence[tuple[str, str]]:
    return [(job.endpoint, job.images) for job in JOBS]


def _spec(number: int) -> JobSpec:
    """A job of the demo with one more tier, so that there is something to see for as long as it takes."""
    spec = JOBS[number].spec("process")
    return replace(
        spec,
        tiers=(*spec.tiers, Tier(LAST_TARGETS[number])),
        max_epochs=1000,
        endpoint_objective_seconds=OBJECTIVE_SECONDS,
    )


async def _follow(browser: Browser, address: str, token: str, jobs: Sequence[JobHandle], folder: Path) -> None:
    """What happens from the first second on, seen in one tab; the picture of it once there is enough."""
    async with open_tab(browser, address, token, size=SHOWN) as tab:
        await tab.show("now")
        for job in jobs:
            await job.wait_for_tier(1, timeout=180)
        for job in jobs[:2]:
            await job.wait_for_tier(2, timeout=180)
        await asyncio.sleep(SEEN_SECONDS)
        await tab.page.screenshot(path=folder / "dashboard.png")


def _views(jobs: Sequence[JobHandle]) -> dict[str, str]:
    ids = [job.id for job in jobs]
    plain = {name: name for name in ("now", "jobs", "endpoints", "what-if", "audit", "usage")}
    return {
        **plain,
        "job": f"jobs/{ids[1]}",
        "job-over": f"jobs/{ids[0]}",
        "job-suspended": f"jobs/{ids[3]}",
        "endpoint": f"endpoints/{JOBS[0].endpoint}",
        "compare": f"compare?jobs={','.join(ids[:3])}",
        "nothing": "jobs/nobody's",
    }


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder that they go into, emptied first")
    output = parser.parse_args().output
    asyncio.run(take_pictures(output))
    print(f"{len([*output.glob('*.png')])} pictures in {output}")


if __name__ == "__main__":
    main()
