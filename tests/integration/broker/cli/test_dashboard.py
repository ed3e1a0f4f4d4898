"""``tiercel dashboard`` against a real broker."""

from __future__ import annotations

import asyncio
import json
import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner

from testing.brokers import running_broker
from testing.browsers import browser_of
from tiercel.broker.cli.app import app


@pytest.mark.parametrize(
    ("options", "tenant", "role"), [(("--tenant", "bob"), "bob", "submitter"), (("--operator",), "", "operator")]
)
async def test_it_prints_a_link_that_signs_in_and_opens_it_where_there_is_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], tenant: str, role: str
) -> None:
    for name in ("TIERCEL_TOKEN", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        (tmp_path / "addresses.json").write_text(json.dumps(broker.addresses))

        async def run(*more: str) -> str:
            command = ("dashboard", "--state-dir", str(tmp_path), *options, *more)
            done = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert done.exit_code == 0, done.output
            return done.output.strip()

        monkeypatch.setenv("DISPLAY", ":0")
        url = await run()
        assert opened == [url]
        assert await run("--no-open") != url
        link = json.loads(await run("--json"))["url"]
        monkeypatch.delenv("DISPLAY")
        await run()
        assert opened == [url]
        answer = await browser.post("session", {"code": link.rpartition("/")[2]})
        assert (answer.content["tenant"], answer.content["role"]) == (tenant, role)
