"""``make bench-dashboard``: how long the pages hold up the browser while 50 jobs of 10,000 points each go on.

The pages are the real ones and so is the browser; the curves, and that all jobs report ten times a second, are made up.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from aiohttp import web

from benchmarks.results import KEEP_HELP, Bar
from benchmarks.sections import finish
from testing.product_use import digits_job
from testing.web_pages import Tab, open_tab, running_chromium
from tiercel.broker.dashboard.curve import decimated
from tiercel.broker.dashboard.pages import show_file, show_index
from tiercel.core.jsonable import json_of

Json = dict[str, Any]

JOBS, POINTS = 50, 10_000
REPORT_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 3.0
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
IDS: Final = [f"job{number:02}" for number in range(JOBS)]
VIEWS: Final = {"jobs": "jobs", "job": f"jobs/{IDS[0]}", "compare": f"compare?jobs={','.join(IDS)}"}
OBSERVE: Final = """() => {
  window.tasks = [];
  window.gaps = [];
  new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration / 1000)))
    .observe({ type: "longtask" });
  let last = performance.now();
  const count = (now) => { window.gaps.push((now - last) / 1000); last = now; requestAnimationFrame(count); };
  requestAnimationFrame(count);
}"""


def main(
    seconds: Annotated[float, typer.Option(min=1, help="Of each view.")] = 15.0,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure, tell, and write dashboard.json; exits with 1 where a bar does not hold."""
    figures = asyncio.run(measure(seconds))
    finish("dashboard", command="make bench-dashboard", figures=figures, keep=keep)


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold."""
    bars = [
        Bar(f"{view}: longest frame on update", found["longest_frame_seconds"], f"< {LONGEST_SECONDS:g}", "s")
        for view, found in figures["views"].items()
    ]
    return [*bars, Bar("points sent for each column of a curve", figures["points_a_column"], "<= 2")]


async def measure(seconds: float) -> Json:
    """Look at each view for a while."""
    script = Script()
    async with script.served() as address, running_chromium() as browser:
        views: Json = {}
        for name, route in VIEWS.items():
            async with open_tab(browser, address, "") as tab:
                await tab.show(route)
                await asyncio.sleep(SETTLE_SECONDS)
                views[name] = await _watched(tab, seconds)
                typer.echo(f"{name}: {views[name]}")
    return {"jobs": JOBS, "points": POINTS, "views": views, "points_a_column": script.points_a_column}


async def _watched(tab: Tab, seconds: float) -> Json:
    await tab.page.evaluate(OBSERVE)
    await asyncio.sleep(seconds)
    tasks, gaps = await tab.page.evaluate("[window.tasks, window.gaps]")
    return {
        "seconds": seconds,
        "frames": len(gaps),
        "longest_frame_seconds": max(gaps),
        "tasks_of_50_ms": len(tasks),
        "longest_task_seconds": max(tasks, default=0.0),
    }


class Script:
    """A broker as far as these pages ask it, of jobs that were made up.

    Attributes:
        points_a_column: The most points that were sent of a curve, by the columns that it is drawn in.
    """

    def __init__(self) -> None:
        self.points_a_column = 0.0
        draw = random.Random(1)
        self._curves = [[_value(draw, number, POINTS) for number in range(POINTS)] for _ in IDS]
        self._jobs = [_job(job_id) for job_id in IDS]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Answer, at the address that comes back."""
        app = web.Application()
        for path, content in {
            "session": {"tenant": "one", "role": "viewer", "policy": "fair"},
            "status": {"problems": []},
            "nodes": [],
            "endpoints": [],
            "jobs": {"jobs": self._jobs, "next": None},
            "jobs/{job}/shares": {"points": []},
            "jobs/{job}/runs": {"count": 0},
            "jobs/{job}/files": [],
            "jobs/{job}/explain": {"decisions": []},
        }.items():
            app.router.add_get(f"/api/v1/{path}", _telling(content))
        app.router.add_get("/api/v1/jobs/{job}", self._job)
        app.router.add_get("/api/v1/jobs/{job}/log", lambda _: _text(""))
        app.router.add_get("/api/v1/jobs/{job}/curve", self._curve)
        app.router.add_get("/api/v1/events", self._events)
        app.router.add_get("/assets/{path:.+}", show_file)
        app.router.add_get("/{path:.*}", show_index)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            host, port = runner.addresses[0][:2]
            yield f"{host}:{port}"
        finally:
            await runner.cleanup()

    async def _job(self, request: web.Request) -> web.Response:
        return web.json_response(self._jobs[IDS.index(request.match_info["job"])])

    async def _curve(self, request: web.Request) -> web.Response:
        values = self._curves[IDS.index(request.match_info["job"])]
        width = int(request.query["width"])
        points = [[float(second), value, second] for second, value in enumerate(values)]
        sent = decimated(points, width, lambda point: point[0], lambda point: point[1])
        self.points_a_column = max(self.points_a_column, len(sent) / width)
        return web.json_response({"points": sent, "total": len(points), "decimated": True, "forecast": None})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        draw = random.Random(2)
        for step in itertools.count(POINTS):
            at = json_of(BEGIN + timedelta(seconds=step))
            lines = []
            for job_id, known in zip(IDS, self._jobs, strict=True):
                told = {"job_id": job_id, "at": at, "epoch": step, "value": _value(draw, step, POINTS)}
                lines.append(f"event: progress\ndata: {json.dumps(told)}\n\n")
                job = {**known, "latest_value": told["value"], "epoch": step}
                lines.append(f"event: job\ndata: {json.dumps(job)}\n\n")
            try:
                await response.write("".join(lines).encode())
            except ConnectionError:  # the view was left
                break
            await asyncio.sleep(REPORT_SECONDS)
        return response


def _value(draw: random.Random, step: int, points: int) -> float:
    return 1 - math.exp(-5 * step / points) + draw.gauss(0, 0.02)


def _job(job_id: str) -> Json:
    tier = {"number": 1, "target": 1.2, "state": "pending", "version": None, "reason": "", "deadline_seconds": None}
    unknown = dict.fromkeys(("reached_value", "delivered_value", "reached_seconds", "delivered_seconds"))
    return {
        "id": job_id,
        "tenant": "one",
        "spec": {**json_of(digits_job(job_id)), "name": job_id},
        "state": "running",
        "reason": "",
        "submitted_at": json_of(BEGIN),
        "started_seconds": 1.0,
        "finished_seconds": None,
        "tiers": [tier | unknown],
        "epoch": POINTS,
        "latest_value": 0.9,
        "best_value": 0.95,
        "node_id": "local",
        "share": {"cpu_weight": 1 / JOBS, "cpu_cap_cores": None, "reason": "as the others", "accelerators": []},
        "cpu_seconds": 1000.0,
        "attempts": 1,
        "accelerator_seconds": 0.0,
        "retries": 0,
    }


def _telling(content: Any) -> Any:
    async def tell(_: web.Request) -> web.Response:
        return web.json_response(content)

    return tell


async def _text(content: str) -> web.Response:
    return web.Response(text=content)


if __name__ == "__main__":
    typer.run(main)
