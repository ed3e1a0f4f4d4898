"""The live table of ``tiercel watch``: what runs comes first, and all of it fits on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tiercel.broker.cli.job_view import WatchedJob
from tiercel.broker.cli.output import clean, fed_by, number, share_cell, tier_cell
from tiercel.core.jobs import JobState, TierState

_STYLES = {
    JobState.COMPLETED: "green",
    JobState.MISSED: "bold yellow",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
    JobState.SUSPENDED: "yellow",
}
_WAITING = frozenset({JobState.PENDING, JobState.SUSPENDED})
_COLUMNS = ("JOB", "NAME", "STATE", "EPOCH", "METRIC", "TIERS", "SHARE", "VERSION")


@dataclass(frozen=True, slots=True)
class _Form:
    bar_width: int
    name_width: int
    left_out: frozenset[str] = frozenset()


# What a narrow terminal gets: shorter bars first, then none, then fewer columns.
_FORMS = (
    _Form(14, 20),
    _Form(6, 20),
    _Form(0, 20),
    _Form(0, 20, frozenset({"VERSION"})),
    _Form(0, 10, frozenset({"VERSION"})),
    _Form(0, 0, frozenset({"VERSION", "NAME"})),
    _Form(0, 0, frozenset({"VERSION", "NAME", "EPOCH"})),
)
_ANY_WIDTH = 10_000
# The table's header, the line about the rest, and the one that the cursor is left on.
_OTHER_LINES = 3


@dataclass(frozen=True, slots=True)
class WatchTable:
    """A row for each job, with a bar for each of its tiers."""

    views: Sequence[WatchedJob]  # the jobs, the earliest first
    # How many finished jobs are shown, the latest; the others are counted. None for all.
    most_finished: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it in the form that fits."""
        height = options.height or console.size.height
        shown, rest = _chosen(self.views, self.most_finished, max(1, height - _OTHER_LINES))
        tables = (_table(shown, form) for form in _FORMS)
        table = next((table for table in tables if _width(console, options, table) <= options.max_width), None)
        yield table or _table(shown, _FORMS[-1])
        if rest:
            states = Counter(view.job.state.value for view in rest)
            counted = ", ".join(f"{count} {state}" for state, count in states.items())
            yield Text(f"and {counted}; 'tiercel ls' lists all", style="dim", no_wrap=True, overflow="ellipsis")


def _chosen(
    views: Sequence[WatchedJob], most_finished: int | None, lines: int
) -> tuple[list[WatchedJob], list[WatchedJob]]:
    """Those that are shown, in order, and the rest: what runs, what waits, what has finished, the latest first."""
    finished = [view for view in reversed(views) if view.job.state.is_final]
    pending = [view for view in views if view.job.state in _WAITING]
    running = [view for view in views if view.job.state not in _WAITING and not view.job.state.is_final]
    lines = min(lines, len(running) + len(pending) + (len(finished) if most_finished is None else most_finished))
    ordered = [*running, *pending, *finished]
    return ordered[:lines], ordered[lines:]


def _width(console: Console, options: ConsoleOptions, table: Table) -> int:
    return Measurement.get(console, options.update(width=_ANY_WIDTH), table).maximum


def _table(views: Sequence[WatchedJob], form: _Form) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    kept = [index for index, column in enumerate(_COLUMNS) if column not in form.left_out]
    for index in kept:
        table.add_column(_COLUMNS[index], no_wrap=True, overflow="ellipsis")
    for view in views:
        cells = _cells(view, form)
        table.add_row(*(cells[index] for index in kept))
    return table


def _cells(view: WatchedJob, form: _Form) -> list[RenderableType]:
    job = view.job
    versions = [tier.version for tier in job.tiers if tier.version]
    name = Text(clean(job.spec.name).replace("\n", " "))
    name.truncate(form.name_width, overflow="ellipsis")
    return [
        Text(job.id),
        name,
        Text(job.state.value, style=_STYLES.get(job.state, "")),
        Text(str(job.epoch)),
        Text(f"{job.spec.metric} {number(job.latest_value)}"),
        _tiers(view, form.bar_width),
        Text(share_cell(job)),
        Text(f"{fed_by(job)} v{max(versions)}" if versions else "-"),
    ]


def _tiers(view: WatchedJob, bar_width: int) -> RenderableType:
    if not bar_width:
        return Text("  ".join(map(tier_cell, view.job.tiers)))
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    for tier in view.job.tiers:
        style = "red" if tier.state is TierState.FAILED else "cyan"
        cells.append(ProgressBar(total=1.0, completed=view.fraction(tier), width=bar_width, complete_style=style))
        cells.append(Text(tier_cell(tier)))
    grid.add_row(*cells)
    return grid
