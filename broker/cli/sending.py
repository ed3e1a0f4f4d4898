"""What people see of a project that is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tiercel.broker.client.projects.packing import PackedProject
    from tiercel.core.jobs import JobSpec

LEFT_OUT_SHOWN = 5
_REQUIREMENTS = "requirements.txt"


def show_project(packed: PackedProject, spec: JobSpec) -> None:
    """Say what belongs to a project, what does not, and what in it is not used although many would expect it."""
    commit = f", commit {packed.project.commit[:12]}" if packed.project.commit else ""
    dirty = " with changes" if commit and packed.project.dirty else ""
    click.echo(
        f"Project {packed.project.sha256[:12]}: {packed.paths} files, {packed.size_bytes:,} bytes{commit}{dirty}."
    )
    shown = list(packed.left_out.items())[:LEFT_OUT_SHOWN]
    for path, why in shown:
        click.echo(f"  not sent: {path} ({why})")
    if (more := len(packed.left_out) - len(shown)) > 0:
        click.echo(f"  not sent: {more} more")
    if not (spec.requirements or spec.image) and (Path(packed.project.folder) / _REQUIREMENTS).is_file():
        click.echo(
            f"  not installed: {_REQUIREMENTS}; if the job needs more than its node has, add to its spec: "
            f"requirements: {_REQUIREMENTS}"
        )


class SendingProgress:
    """A bar while a project is sent; a context manager.

    Args:
        shown: Whether to show it at all; it is never shown where nobody looks.
    """

    def __init__(self, *, shown: bool) -> None:
        # Commands that send nothing do without: it takes longer to import than a call takes.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(stderr=True)
        columns = (TextColumn("Sending"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, sent: int, total: int) -> None:
        """Show how far it is, in bytes."""
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=sent, total=total)
