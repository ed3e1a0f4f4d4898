"""What ``tiercel top`` shows: pure, from what the broker said."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from tiercel.broker.cli.output import (
    age,
    clean,
    fed_by,
    live_cell,
    milliseconds,
    number,
    share_cell,
    table_that_fits,
    tier_cell,
)
from tiercel.broker.client import EndpointInfo, JobInfo, NodeInfo
from tiercel.core.figures import percent, size
from tiercel.core.jobs import JobState
from tiercel.core.nodes import Drain

Table = tuple[Sequence[str], list[tuple[str, ...]]]

_NODE_COLUMNS = ("NODE", "STATE", "CORES", "JOBS", "MEMORY", "GPU BUSY")
_JOB_COLUMNS = ("ID", "STATE", "NODE", "SHARE", "EPOCH", "NOW", "TIERS", "NAME", "FEEDS", "AGE")
_ENDPOINT_COLUMNS = ("ENDPOINT", "LIVE", "VALUE", "REQUESTS/S", "P95", "CORES")
_SORTS = ("age", "share", "name", "state")
_SHOWN = ("all", "running", "pending", "suspended")
_MOST_NODES = 8
_MOST_ENDPOINTS = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """In which order jobs are shown, and which of them."""

    sort: str = _SORTS[0]  # one of age, share, name and state
    shown: str = _SHOWN[0]  # one of all, running, pending and suspended

    def after(self, key: str) -> Choice:
        """The choice after a key; the same for keys that mean nothing."""
        match key:
            case "s":
                return dataclasses.replace(self, sort=_next(_SORTS, self.sort))
            case "f":
                return dataclasses.replace(self, shown=_next(_SHOWN, self.shown))
        return self

    def of(self, jobs: Sequence[JobInfo]) -> list[JobInfo]:
        """The jobs that are shown, in order."""
        kept = [job for job in jobs if self.shown in {"all", _group(job)}]
        match self.sort:
            case "share":
                return sorted(kept, key=lambda job: -(job.share.cpu_weight if job.share else 0.0))
            case "name":
                return sorted(kept, key=lambda job: job.spec.name)
            case "state":
                return sorted(kept, key=lambda job: (_group(job) != "running", job.state.value))
        return kept


@dataclass(frozen=True, slots=True)
class Picture:
    """What the broker said at one moment."""

    nodes: Sequence[NodeInfo]  # all of them
    jobs: Sequence[JobInfo]  # the tenant's that have not finished
    endpoints: Sequence[EndpointInfo]  # the tenant's

    def to_json(self) -> dict[str, Any]:
        """With the keys of ``nodes``, ``ls`` and ``endpoints``."""
        return {name: [each.to_json() for each in getattr(self, name)] for name in ("nodes", "jobs", "endpoints")}

    def tables(self, choice: Choice | None = None) -> list[Table]:
        """Nodes, jobs, and endpoints if there are any."""
        jobs = (choice or Choice()).of(self.jobs)
        tables: list[Table] = [
            (_NODE_COLUMNS, [_node_row(node) for node in self.nodes]),
            (_JOB_COLUMNS, [_job_row(job) for job in jobs]),
        ]
        if self.endpoints:
            tables.append((_ENDPOINT_COLUMNS, [_endpoint_row(endpoint) for endpoint in self.endpoints]))
        return tables


@dataclass(frozen=True, slots=True)
class Screen:
    """All of it, in as many lines as the terminal has: jobs get what nodes and endpoints leave."""

    picture: Picture  # what to show
    choice: Choice  # of the jobs
    problem: str = ""  # why it is not of this moment; empty if it is

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        width, height = options.max_width, options.height or console.size.height
        yield self._head()
        nodes, jobs, *endpoints = self.picture.tables(self.choice)
        few = [(nodes, _MOST_NODES), *((table, _MOST_ENDPOINTS) for table in endpoints)]
        # A header and an empty line for each table, one line at the top and one at the bottom.
        taken = 3 + sum(min(len(rows), most) + 2 for (_, rows), most in few)
        yield from _drawn(*nodes, _MOST_NODES, width)
        yield from _drawn(*jobs, max(1, height - taken - 2), width)
        for columns, rows in endpoints:
            yield from _drawn(columns, rows, _MOST_ENDPOINTS, width)
        keys = f"q quit   s sort: {self.choice.sort}   f show: {self.choice.shown}"
        yield Text(keys, style="reverse", no_wrap=True, overflow="crop")

    def _head(self) -> Text:
        if self.problem:
            return Text(clean(self.problem), style="bold red", no_wrap=True, overflow="ellipsis")
        online = sum(node.online for node in self.picture.nodes)
        states = Counter(job.state.value for job in self.picture.jobs)
        jobs = ", ".join(f"{count} {state}" for state, count in states.items()) or "none active"
        at = f"{datetime.now(UTC).astimezone():%H:%M:%S}"
        text = f"{at}  nodes online: {online} of {len(self.picture.nodes)}  jobs: {jobs}"
        return Text(text, style="bold", no_wrap=True, overflow="ellipsis")


def _drawn(columns: Sequence[str], rows: list[tuple[str, ...]], most: int, width: int) -> RenderResult:
    shown = rows if len(rows) <= most else rows[: max(1, most - 1)]
    table, _ = table_that_fits(columns, shown, width, one_line=True)
    yield table
    if len(rows) > len(shown):
        yield Text(f"and {len(rows) - len(shown)} more", style="dim")
    yield Text("")


def _group(job: JobInfo) -> str:
    return job.state.value if job.state in {JobState.PENDING, JobState.SUSPENDED} else "running"


def _next(words: tuple[str, ...], word: str) -> str:
    return words[(words.index(word) + 1) % len(words)]


def _node_row(node: NodeInfo) -> tuple[str, ...]:
    busy = [device.utilisation for device in node.accelerators if device.utilisation is not None]
    return (
        clean(node.id),
        ("online" if node.online else "offline") + ("" if node.drain is Drain.NO else ", drained"),
        f"{node.cpu_cores:g}",
        str(node.jobs),
        f"{size(node.memory_reserved_bytes)} of {size(node.memory_bytes)}",
        " ".join(percent(part) for part in busy) or "-",
    )


def _job_row(job: JobInfo) -> tuple[str, ...]:
    return (
        job.id,
        job.state.value,
        clean(job.node_id) or "-",
        share_cell(job),
        f"{job.epoch}/{job.spec.max_epochs}",
        f"{job.spec.metric} {number(job.latest_value)}",
        "  ".join(tier_cell(tier) for tier in job.tiers),
        clean(job.spec.name).replace("\n", " "),
        fed_by(job),
        age(job.submitted_at),
    )


def _endpoint_row(endpoint: EndpointInfo) -> tuple[str, ...]:
    live = next((version for version in endpoint.versions if version.version == endpoint.live_version), None)
    return (
        endpoint.name,
        f"{len(endpoint.variants)} variants" if endpoint.variants else live_cell(endpoint.live_version, endpoint),
        f"{live.metric} {number(live.value)}".strip() if live else "-",
        "-" if endpoint.requests_per_second is None else f"{endpoint.requests_per_second:.3g}",
        milliseconds(endpoint.windows[0].p95_seconds if endpoint.windows else None),
        "-" if endpoint.cpu_cores is None else f"{endpoint.cpu_cores:.2g}",
    )
