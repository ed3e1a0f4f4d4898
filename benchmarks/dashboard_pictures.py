"""Pictures of every view of the dashboard, light, dark and on a phone, while the demo's jobs train and are asked.

Usage: ``python -m benchmarks.dashboard_pictures`` (``make dashboard-pictures``); needs Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from playwright.async_api import Browser

from benchmarks.demo_jobs import JOBS
from testing import onnx_models
from testing.application_process import ApplicationProcess
from testing.product import Product
from testing.product_use import digits_job
from testing.sample_images import load_samples
from testing.web_pages import PHONE, Tab, open_tab, running_chromium
from tiercel import Client, JobHandle, JobInfo, JobSpec, JobState, Resources, Tier
from tiercel.broker.client.state_dir import read_token
from tiercel.core.private_files import write_private

OUTPUT: Final = Path(__file__).parents[1] / "build" / "dashboard"
TENANT: Final = "alice"
RATE: Final = 60.0
# Of the demo's jobs: what they reach late, or not at all.
LAST_TARGETS: Final = (0.98, 0.999, 0.999, 60.0)
OBJECTIVE_SECONDS: Final = 0.02
# Long enough that the curves and the delays have something to show.
SEEN_SECONDS: Final = 4.0
# A server that looks at each row has enough of them within seconds; it compares so many with as many.
SAMPLE_SECONDS: Final = 0.001
ROWS_COMPARED: Final = 500
DRIFTING: Final = JOBS[3]
TRIAL_SECONDS: Final = 3600
GENERATING: Final = "letters"
CLASSES: Final = "[priority_classes.urgent]\nvalue = 100\n\n[priority_classes.later]\nvalue = -10\n"
# So much of the node's memory that two such jobs have no room.
LARGE_PART: Final = 0.55
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
        state.mkdir(mode=0o700)
        write_private(state / "tenants.toml", CLASSES.encode())
        environment = {"TIERCEL_SERVING_INPUT_SAMPLE_SECONDS": str(SAMPLE_SECONDS)}
        options = ("--runtime", "process", "--tenant", TENANT)
        async with (
            running_chromium() as browser,
            Product(state, folder / "up.log", options, environment) as product,
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
            preempted = await _preempt(client)
            await _try_another_version(product, client)
            await _deploy_a_decoder(client, Path(scratch))
            operator = (state / "operator.token").read_text().strip()
            views = _views(jobs, preempted)
            for name, look in LOOKS.items():
                async with open_tab(browser, address, token, **look) as tab:
                    for view, route in views.items():
                        await tab.show(route)
                        await asyncio.sleep(SEEN_SECONDS if name == "light" else 1.5)
                        await tab.page.screenshot(path=folder / f"{view}-{name}.png", full_page=True)
                    await _act(tab, folder, name, product)
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


async def _act(tab: Tab, folder: Path, name: str, product: Product) -> None:
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
    await _drift(product)  # now, as what the application goes on to ask is usual
    await tab.show(f"endpoints/{DRIFTING.endpoint}")
    await page.get_by_text("different from the first ones").wait_for()
    await page.screenshot(path=folder / f"drifted-{name}.png", full_page=True)
    await tab.show(f"endpoints/{GENERATING}")
    await page.get_by_label("Prompt").fill("a")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await page.get_by_text("It came to its end.").wait_for()
    await page.screenshot(path=folder / f"generated-{name}.png", full_page=True)
    await tab.show("what-if")
    await page.get_by_role("button", name="Predict").click()
    await page.get_by_role("heading", name="What would be different").wait_for()
    await page.screenshot(path=folder / f"predicted-{name}.png", full_page=True)


async def _preempt(client: Client) -> JobHandle:
    """A job that had to make room for one of a higher class."""
    (node,) = await client.list_nodes()
    large = Resources(cpu_cores=1.0, memory_bytes=int(LARGE_PART * node.memory_bytes))
    slow: dict[str, Any] = {
        "arguments": ("--step-sleep-seconds", "0.05", "--epochs", "100000"),
        "max_epochs": 100_000,
        "resources": large,
    }
    later = await client.submit(digits_job("nightly", (0.999,), priority_class="later", **slow))
    await _wait_job(later, lambda job: job.state is JobState.RUNNING and job.epoch > 0)
    await client.submit(digits_job("urgent", (0.999,), priority_class="urgent", **slow))
    await _wait_job(later, lambda job: job.state is JobState.PENDING)
    return later


async def _wait_job(job: JobHandle, condition: Callable[[JobInfo], bool]) -> None:
    async with asyncio.timeout(180):
        while not condition(await job.refresh()):  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.2)


async def _try_another_version(product: Product, client: Client) -> None:
    """Put the newest version that does not answer on trial, so that the pictures have one."""
    endpoint = next(each for each in await client.list_endpoints() if each.name == JOBS[0].endpoint)
    version = max(each.version for each in endpoint.versions if not each.live)
    token = (product.state_dir / "agent" / "serving.token").read_text().strip()
    url = f"http://{product.addresses['serving_http']}/v2/repository/models/{JOBS[0].endpoint}/load"
    body = {"parameters": {"version": str(version), "canary_fraction": 0.5, "canary_seconds": TRIAL_SECONDS}}
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()


async def _drift(product: Product) -> None:
    """Ask an endpoint what it was asked at first, and then something else."""
    url = f"http://{product.addresses['serving_http']}/v2/models/{DRIFTING.endpoint}/infer"
    usual = load_samples(DRIFTING.images).images
    async with aiohttp.ClientSession() as session:
        for rows in (usual, 0.25 * usual):
            for number in range(2 * ROWS_COMPARED):
                row = rows[number % len(rows)][None]
                tensor = {"name": "input", "shape": row.shape, "datatype": "FP32", "data": row.ravel().tolist()}
                async with session.post(url, json={"inputs": [tensor]}) as answer:
                    assert answer.status == 200, await answer.text()


async def _deploy_a_decoder(client: Client, folder: Path) -> None:
    file = folder / f"{GENERATING}.onnx"
    file.write_bytes(onnx_models.letters())
    await client.deploy(file, GENERATING)


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


def _views(jobs: Sequence[JobHandle], preempted: JobHandle) -> dict[str, str]:
    ids = [job.id for job in jobs]
    plain = {name: name for name in ("now", "jobs", "endpoints", "what-if", "audit", "usage")}
    return {
        **plain,
        "job": f"jobs/{ids[1]}",
        "job-over": f"jobs/{ids[0]}",
        "job-suspended": f"jobs/{ids[3]}",
        "job-preempted": f"jobs/{preempted.id}",
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
