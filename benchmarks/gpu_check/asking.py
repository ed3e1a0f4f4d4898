"""Runs the load, and makes figures and rows of what it got."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.gpu_check.figures import OBJECTIVE_WINDOW_SECONDS, Asked, Served, served
from benchmarks.gpu_check.frame import CheckError, Findings, Setting
from benchmarks.gpu_check.processes import output_of
from benchmarks.gpu_check.workloads import Asking
from benchmarks.serving.bodies import Body

OBJECTIVE_GOAL = ">= 95"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a load got, request by request."""

    began: float  # when the first was due, in seconds of ``time.monotonic``
    asked: Sequence[Asked]  # in the order in which they were due
    objective_seconds: float  # wanted of each

    def served(self, until: float = math.inf) -> Served:
        """Figures of those that were due before a moment of ``time.monotonic``; of the first second at least."""
        end = max(until - self.began, OBJECTIVE_WINDOW_SECONDS)
        return served([each for each in self.asked if each.due < end], self.objective_seconds)


async def ask(port: int, path: str, body: Body, asking: Asking, setting: Setting) -> Answers:
    """Load a server on this machine for a while.

    Args:
        port: Of its HTTP.
        path: Where.
        body: What.
        asking: How often, how long, and what is wanted.
        setting: Of the check.

    Raises:
        CheckError: The load failed, or nothing was answered.
    """
    content = setting.folder / "request.body"
    content.write_bytes(body.content)
    told = await output_of(
        "load",
        *(str(port), path, str(content), json.dumps(dict(body.headers)), str(asking.rate), str(asking.seconds)),
        seconds=asking.seconds * 2 + 60,
        log=setting.folder / "load.log",
    )
    delays = [math.inf if delay is None else float(delay) for delay in told["delays"]]
    if all(map(math.isinf, delays)):
        raise CheckError(f"none of {len(delays)} requests to {path} was answered")
    asked = [Asked(number / asking.rate, delay) for number, delay in enumerate(delays)]
    return Answers(float(told["began"]), asked, asking.objective_seconds)


def add_served(findings: Findings, name: str, got: Served, asking: Asking, *, with_bar: bool, note: str = "") -> None:
    """Rows of a load.

    Args:
        findings: Where they go.
        name: What ran beside it.
        got: What it got.
        asking: What was wanted.
        with_bar: Whether its windows have to be within the objective.
        note: What else is to be known.
    """
    finite = {key: value if math.isfinite(value) else None for key, value in asdict(got).items()}
    findings.figures[name] = finite | {"rate": asking.rate, "objective_ms": asking.objective_seconds * 1e3}
    p99 = got.p99_ms if math.isfinite(got.p99_ms) else None
    failed = f"; {got.failed} without an answer" if got.failed else ""
    findings.add(f"{name}: p99", p99, "ms", note=f"p50 {got.p50_ms:.1f} ms, {asking.rate:g} requests/s{failed}{note}")
    windows = f"p99 of a second <= {asking.objective_seconds * 1e3:.0f} ms, {got.windows} of them"
    findings.add(f"{name}: in objective", got.in_objective * 100, "%", OBJECTIVE_GOAL if with_bar else "", windows)
