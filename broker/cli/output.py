"""How things are printed: tables on a terminal, plain columns elsewhere, JSON on request."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tiercel.core import figures
from tiercel.core.figures import percent, plural, size
from tiercel.core.jobs import JobState, TierState
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from tiercel.broker.client import (
        DecisionInfo,
        EndpointInfo,
        JobInfo,
        NodeInfo,
        ReplicaInfo,
        TierStatus,
        VariantInfo,
    )
    from tiercel.core.shares import Share

# What a script prints or a job's reason says is not to move the cursor or rename the window.
_CONTROL = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_STATE_STYLES = {
    JobState.RUNNING: "green",
    JobState.COMPLETED: "bold green",
    JobState.MISSED: "bold yellow",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
    JobState.SUSPENDED: "yellow",
    JobState.DISCONNECTED: "red",
}
_TIER_MARKS = {
    TierState.PENDING: "·",
    TierState.UNREACHABLE: "✗",
    TierState.REACHED: "…",
    TierState.DELIVERED: "✓",
    TierState.FAILED: "!",
}

JOB_COLUMNS = ("ID", "NAME", "STATE", "EPOCH", "BEST", "TIERS", "SHARE", "ENDPOINT", "AGE")
NODE_COLUMNS = ("ID", "STATE", "CORES", "MEMORY", "JOBS", "RUNTIMES", "LIMITS", "SERVING")
ACCELERATOR_COLUMNS = ("NODE", "GPU", "MAKE", "MEMORY", "HELD", "BUSY", "JOBS", "PROBLEM")
LABEL_COLUMNS = ("NODE", "LABEL")
ENDPOINT_COLUMNS = (
    "NAME",
    "LIVE",
    "METRIC",
    "VALUE",
    "JOB",
    "ANSWERS",
    "DELAY",
    "P95",
    "IN TIME",
    "SHARE",
    "ACCESS",
    "NODES",
    "SERVING",
)
# In which order a narrow terminal does without them; what is not here is always shown.
_DISPENSABLE = (
    "FEEDS",
    "ANSWERS",
    "P95",
    "LIMITS",
    "RUNTIMES",
    "AGE",
    "METRIC",
    "JOB",
    "MAKE",
    "EPOCH",
    "SHARE",
    "IN TIME",
    "NODES",
    "ACCESS",
    "SERVING",
)
_NOTHING = ("", "-")
_GAP = 2
DECISION_COLUMNS = ("AT", "TRIGGER", "POLICY", "NODE", "SHARE", "REASON")


def is_terminal() -> bool:
    """Whether somebody watches standard output."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print JSON, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a header: a table that fits on a terminal, or else columns that cut nothing off."""
    if is_terminal():
        _print_rich_table(columns, rows)
        return
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    for row in (columns, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # rich is for terminals only; scripts do not wait for its import.
    from rich.console import Console
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    table, silent = table_that_fits(columns, rows, width)
    console = Console(width=width)
    console.print(table)
    if silent:
        told = ", ".join(silent)
        what = "column" if len(silent) == 1 else "columns"
        console.print(Text(f"no room for the {what} {told}; --json has all", style="dim"))


def table_that_fits(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, one_line: bool = False
) -> tuple[Table, list[str]]:
    """A table for a terminal, and which columns that would say something are not in it for want of width.

    Args:
        columns: Their names.
        rows: A cell for each column.
        width: Of the terminal, in columns of characters.
        one_line: Whether each row has to be one line, so that cells are cut off where that does not do either.
    """
    from rich.table import Table
    from rich.text import Text

    left_out = columns_left_out(columns, rows, width)
    kept = [index for index, column in enumerate(columns) if column not in left_out]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for index in kept:
        table.add_column(columns[index], overflow="ellipsis" if one_line else "fold", no_wrap=one_line)
    styles = {state.value: style for state, style in _STATE_STYLES.items()}
    for row in rows:
        table.add_row(*(Text(row[index], style=styles.get(row[index], "")) for index in kept))
    says = any(row[index] not in _NOTHING for row in rows for index in range(len(columns)) if index not in kept)
    return table, [column for column in columns if column in left_out] if says else []


def columns_left_out(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> set[str]:
    """Columns to do without for each row to fit in one line: those that say nothing first, then the least important."""
    wide = {
        column: max(len(line) for row in (columns, *rows) for line in row[index].split("\n"))
        for index, column in enumerate(columns)
    }
    silent = [column for index, column in enumerate(columns) if all(row[index] in _NOTHING for row in rows)]
    left_out: set[str] = set()
    for column in (*(c for c in silent if c in _DISPENSABLE), *_DISPENSABLE):
        if sum(wide[c] + _GAP for c in columns if c not in left_out) - _GAP <= width:
            break
        if column in wide:
            left_out.add(column)
    return left_out


def clean(text: str) -> str:
    """Text without control characters besides line breaks and tabs."""
    return text.translate(_CONTROL)


def number(value: float | None) -> str:
    """A metric, short."""
    return "-" if value is None else figures.number(value)


def age(since: datetime, now: datetime | None = None) -> str:
    """How long ago, in one unit."""
    seconds = max(0.0, ((now or datetime.now(UTC)) - since).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def tier_cell(tier: TierStatus) -> str:
    """A tier, short: mark, target, version."""
    version = f" v{tier.version}" if tier.version else ""
    return f"{_TIER_MARKS[tier.state]}{number(tier.target)}{version}"


def fed_by(job: JobInfo) -> str:
    """What a job feeds: an endpoint, or a variant of one."""
    return f"{job.spec.endpoint}/{job.spec.variant}" if job.spec.variant else job.spec.endpoint


def share_cell(job: JobInfo) -> str:
    """A job's share of its node, in percent."""
    if job.share is None or job.state.is_final:
        return "-"
    return share_text(job.share)


def share_text(share: Share) -> str:
    """A share of the CPU and of accelerators."""
    cap = f" ≤{share.cpu_cap_cores:.2g}" if share.cpu_cap_cores else ""
    held = ", ".join(percent(each.fraction) for each in share.accelerators)
    return f"{percent(share.cpu_weight)}{cap}" + (f" + GPU {held}" if held else "")


def delay_cell(endpoint: EndpointInfo) -> str:
    """How long answers of an endpoint took lately, and how long they may take, in milliseconds."""
    took = "-" if endpoint.delay_seconds is None else f"{1000 * endpoint.delay_seconds:.3g}"
    if endpoint.objective_seconds is None:
        return took if took == "-" else f"{took} ms"
    return f"{took} of {1000 * endpoint.objective_seconds:.4g} ms"


def milliseconds(seconds: float | None) -> str:
    """A delay."""
    return "-" if seconds is None else f"{1000 * seconds:.3g} ms"


def part(fraction: float | None) -> str:
    """A part of a whole."""
    return "-" if fraction is None else percent(fraction)


def job_row(job: JobInfo) -> tuple[str, ...]:
    """A job for :data:`JOB_COLUMNS`."""
    return (
        job.id,
        clean(job.spec.name),
        job.state.value,
        f"{job.epoch}/{job.spec.max_epochs}",
        f"{job.spec.metric} {number(job.best_value)}",
        "  ".join(tier_cell(tier) for tier in job.tiers),
        share_cell(job),
        fed_by(job),
        age(job.submitted_at),
    )


def node_row(node: NodeInfo) -> tuple[str, ...]:
    """A node for :data:`NODE_COLUMNS`."""
    return (
        node.id,
        ("online" if node.online else "offline") + ("" if node.drain is Drain.NO else ", drained"),
        f"{node.cpu_cores:g}",
        f"{size(node.memory_reserved_bytes)} of {size(node.memory_bytes)}",
        str(node.jobs),
        ",".join(node.runtimes),
        node.limits,
        node.serving_http or "-",
    )


def label_rows(node: NodeInfo) -> list[tuple[str, ...]]:
    """A node's labels for :data:`LABEL_COLUMNS`."""
    return [(node.id, f"{clean(name)}={clean(value)}") for name, value in sorted(node.labels.items())]


def accelerator_rows(node: NodeInfo) -> list[tuple[str, ...]]:
    """A node's accelerators for :data:`ACCELERATOR_COLUMNS`."""
    return [
        (
            node.id,
            device.id,
            clean(device.name),
            f"{size(device.memory_reserved_bytes)} of {size(device.memory_bytes)}",
            size(device.memory_used_bytes) if node.online else "-",
            part(device.utilisation),
            str(device.jobs),
            clean(device.problem) or "-",
        )
        for device in node.accelerators
    ]


def endpoint_rows(endpoint: EndpointInfo) -> list[tuple[str, ...]]:
    """An endpoint for :data:`ENDPOINT_COLUMNS`, and its variants, a row for each."""
    copies = endpoint.places[1:]
    return [
        _endpoint_row(endpoint),
        *(_variant_row(endpoint, variant) for variant in endpoint.variants),
        *(_replica_row(copy) for copy in copies),
    ]


def live_cell(live: int | None, place: EndpointInfo | VariantInfo) -> str:
    """The version that shall answer, whether it was chosen, and which one does answer where that is another."""
    notes = ["pinned"] if place.pinned else []
    if place.answering_version not in (None, live):
        notes.append(f"{place.answering_version} answers")
    return f"{live or '-'}" + (f" ({', '.join(notes)})" if notes else "")


def _variant_row(endpoint: EndpointInfo, variant: VariantInfo) -> tuple[str, ...]:
    cells = (
        f"  {variant.name}",
        *_version_cells(endpoint, variant.live_version, variant),
        part(variant.answered_part),
    )
    return (*cells, *["" for _ in ENDPOINT_COLUMNS[len(cells) :]])


def _replica_row(replica: ReplicaInfo) -> tuple[str, ...]:
    """Another node that shall answer; how it answers stands with its endpoint."""
    version = "-" if replica.answering_version is None else str(replica.answering_version)
    middle = ["" for _ in ENDPOINT_COLUMNS[3:]]
    return (f"  on {replica.node_id}", version, *middle, replica.serving_http or "-")


def endpoint_notes(endpoints: Iterable[EndpointInfo]) -> list[str]:
    """What a table of endpoints has no room for, a line each: who does not answer with what it should, and why.

    And why endpoints answer on as many nodes as they do, where the broker says that.
    """
    return [line for endpoint in endpoints for line in _notes_of(endpoint)]


def _notes_of(endpoint: EndpointInfo) -> Iterator[str]:
    name = endpoint.name
    if endpoint.problem:
        yield f"{name}: {clean(endpoint.problem)}"
    for variant in endpoint.variants:
        if variant.problem:
            yield f"{name}, variant {variant.name}: {clean(variant.problem)}"
    for place in endpoint.places:
        if place.problem and place.problem != endpoint.problem:
            yield f"{name} on {place.node_id}: {clean(place.problem)}"
    if missing := missing_copies(endpoint):
        yield f"{name} on {missing}"
    yield from (f"{name}: {clean(each)}" for each in endpoint.awaited)
    if endpoint.auto_replicas and endpoint.replicas_reason:
        yield f"{name} on {plural(endpoint.replicas, 'node')}: {clean(endpoint.replicas_reason)}"


def missing_copies(endpoint: EndpointInfo) -> str:
    """Of an endpoint that has fewer nodes than were asked for: how many, and why; empty where it has them all."""
    if len(endpoint.places) >= endpoint.replicas or endpoint.live_version is None:
        return ""
    return (
        f"{len(endpoint.places)} of {endpoint.replicas} nodes: no other node is up, serves and has room; more follow "
        "when there are"
    )


def _version_cells(
    endpoint: EndpointInfo, number_of_version: int | None, place: EndpointInfo | VariantInfo
) -> tuple[str, ...]:
    """Number, metric, value and job of a version that answers."""
    live = next((version for version in endpoint.versions if version.version == number_of_version), None)
    if live is None:
        return ("-", "-", "-", "-")
    return (live_cell(live.version, place), live.metric, number(live.value), live.job_id)


def _endpoint_row(endpoint: EndpointInfo) -> tuple[str, ...]:
    count = len(endpoint.variants)
    words = (plural(count, "variant"), "", "", "")
    return (
        endpoint.name,
        *(words if count else _version_cells(endpoint, endpoint.live_version, endpoint)),
        "",
        delay_cell(endpoint),
        milliseconds(endpoint.windows[0].p95_seconds if endpoint.windows else None),
        part(endpoint.in_objective),
        "-" if endpoint.share is None else share_text(endpoint.share),
        endpoint.access.value,
        ",".join(place.node_id for place in endpoint.places) or endpoint.node_id or "-",
        endpoint.serving_http or "-",
    )


def decision_row(decision: DecisionInfo) -> tuple[str, ...]:
    """A decision for :data:`DECISION_COLUMNS`."""
    return (
        f"{decision.at.astimezone():%H:%M:%S}",
        decision.trigger,
        decision.policy,
        decision.node_id,
        share_text(decision.share),
        clean(decision.share.reason),
    )
