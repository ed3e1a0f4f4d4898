"""The live table of ``tiercel watch``."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tiercel.broker.cli.job_view import JobView
from tiercel.broker.cli.output import clean, fed_by, number, share_cell, tier_cell
from tiercel.broker.domain.jobs import JobState, TierState

_BAR_WIDTH = 14
_STYLES = {
    JobState.COMPLETED: "green",
    JobState.MISSED: "bold yellow",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
}


def watch_table(views: Iterable[JobView]) -> Table:
    """A row for each job, with a bar for each of its tiers."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for column in ("JOB", "NAME", "STATE", "EPOCH", "METRIC", "TIERS", "CPU", "VERSION"):
        table.add_column(column)
    for view in views:
        table.add_row(*_cells(view))
    return table


def _cells(view: JobView) -> list[RenderableType]:
    job = view.job
    versions = [tier.version for tier in job.tiers if tier.version]
    return [
        Text(job.id),
        Text(clean(job.spec.name)),
        Text(job.state.value, style=_STYLES.get(job.state, "")),
        Text(str(job.epoch)),
        Text(f"{job.spec.metric} {number(job.latest_value)}"),
        _tiers(view),
        Text(share_cell(job)),
        Text(f"{fed_by(job)} v{max(versions)}" if versions else "-"),
    ]


def _tiers(view: JobView) -> Table:
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    for tier in view.job.tiers:
        style = "red" if tier.state is TierState.FAILED else "cyan"
        cells.append(ProgressBar(total=1.0, completed=view.fraction(tier), width=_BAR_WIDTH, complete_style=style))
        cells.append(Text(tier_cell(tier)))
    grid.add_row(*cells)
    return grid
