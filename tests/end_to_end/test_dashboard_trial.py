"""The trial (canary) of a newer version, as the dashboard shows it: a real browser, a real training, a real server."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import expect

from testing.product_use import JOB_SECONDS, client_of, digits_job, running_product
from testing.web_pages import WAIT_SECONDS, open_tab, running_chromium
from tiercel import JobState
from tiercel.broker.client.state_dir import read_token

pytestmark = [pytest.mark.end_to_end, pytest.mark.browser, pytest.mark.timeout(300)]

expect.set_options(timeout=WAIT_SECONDS * 1000)


async def test_the_trial_of_a_newer_version_is_seen_from_its_beginning_to_its_end(
    tmp_path: Path,
) -> None:
    environment = {"TIERCEL_SERVING_CANARY_FRACTION": "0.5", "TIERCEL_SERVING_CANARY_SECONDS": "90"}
    async with running_product(tmp_path, environment=environment) as product, client_of(product) as alice:
        job = await alice.submit(digits_job(targets=(0.70, 0.90)))
        await job.wait_for_tier(1, JOB_SECONDS)
        token = read_token(product.state_dir, "alice")
        async with running_chromium() as browser, open_tab(browser, product.addresses["dashboard"], token) as tab:
            await tab.show("endpoints/digits")
            trial = tab.page.get_by_role("region", name="Trial of version 2")
            await expect(trial).to_contain_text(re.compile("on trial.*50 % of the requests.*Version 1", re.DOTALL))
            image = {"input": [[[0.0] * 8] * 8]}
            versions = [(await alice.infer("digits", image)).version for _ in range(4)]
            assert sorted(map(str, versions)) == ["1", "1", "2", "2"]
            await expect(trial).to_contain_text(re.compile(r"Version 2\s*2 answers.*Version 1\s*2 answers", re.DOTALL))
            # What answers is still the version that shall.
            places = tab.page.get_by_role("table", name="Where it answers")
            await expect(places).to_contain_text(re.compile(r"local\s*1\s*✓ yes"))
            # It is decided now: nobody has to wait for its end.
            operator = (product.state_dir / "agent" / "serving.token").read_text().strip()
            load = f"http://{product.addresses['serving_http']}/v2/repository/models/digits/load"
            body = {"parameters": {"version": "2", "canary_fraction": 1}}
            headers = {"Authorization": f"Bearer {operator}"}
            async with aiohttp.ClientSession(headers=headers) as session, session.post(load, json=body) as answer:
                assert answer.status == 200, await answer.text()
            await expect(trial).to_contain_text("promoted")
            await expect(tab.page.locator(".subtitle")).to_contain_text("version 2")
            assert (await job.wait(JOB_SECONDS)).state is JobState.COMPLETED
