"""The demo while it runs: a live picture in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.demo_state import DemoState
from benchmarks.timeline import JobTrack
from tiercel import JobState, TierState
from tiercel.broker.client import TierStatus

LINE_SECONDS = 2.0
BAR_WIDTH = 14
COLUMNS: dict[str, JustifyMethod] = {
    "Job": "left",
    "Metric": "right",
    "To the next tier": "left",
    "Tiers": "left",
    "CPU": "right",
    "Live": "right",
}
_MARKS = {
    TierState.PENDING: ("○", "dim"),
    TierState.UNREACHABLE: ("○", "yellow"),
    TierState.REACHED: ("◐", "cyan"),
    TierState.DELIVERED: ("●", "green"),
    TierState.FAILED: ("✗", "red"),
}


class View(Protocol):
    """Shows a demo's state; a context manager around the time in which it does."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, state: DemoState) -> None:
        """Show it as it is now; called a few times a second."""


def view_for(console: Console) -> View:
    """A live picture for terminals, plain lines for files, pipes and CI."""
    if console.is_terminal and not os.environ.get("CI"):
        return TerminalView(console)
    return PlainView(console)


class TerminalView:
    """A picture that changes in place."""

    def __init__(self, console: Console) -> None:
        # Refreshed by show() only: a thread of rich's own would read the state while it changes.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, state: DemoState) -> None:
        """Draw the picture again."""
        self._live.update(render(state), refresh=True)


class PlainView:
    """A line every two seconds, and one for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._told: set[str] = set()
        self._last_line = -LINE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, state: DemoState) -> None:
        """Print what is new."""
        seconds = state.seconds
        if state.phase != self._phase:
            self._phase = state.phase
            self._print(seconds, state.phase)
        for line in happenings(state):
            if line not in self._told:
                self._told.add(line)
                self._print(seconds, line)
        if state.timeline.jobs and seconds - self._last_line >= LINE_SECONDS:
            self._last_line = seconds
            self._print(seconds, status_line(state))

    def _print(self, seconds: float, text: str) -> None:
        self._console.print(f"[{seconds:5.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)


def happenings(state: DemoState) -> list[str]:
    """A sentence for everything of note that has happened so far, each always the same."""
    lines = []
    for track in state.timeline:
        for tier in track.tiers:
            target = f"{track.name}: tier {tier.number} ({track.metric} {tier.target:g})"
            if tier.reached_seconds is not None:
                lines.append(f"{target} reached after {tier.reached_seconds:.1f} s")
            if tier.state is TierState.DELIVERED:
                lines.append(f"{target} delivered as version {tier.version} of {track.endpoint}")
            if tier.state is TierState.FAILED:
                lines.append(f"{target} failed: {tier.reason}")
        if track.state.is_final:
            lines.append(f"{track.name}: {track.state.value}. {track.reason}".rstrip(". ") + ".")
    lines.extend(f"{each.endpoint}: version {each.version} answers" for each in state.timeline.first_answers)
    return lines


def status_line(state: DemoState) -> str:
    """The state in one line."""
    jobs = "  ".join(_short(track) for track in state.timeline)
    return f"{jobs} | {load_line(state)}"


def load_line(state: DemoState) -> str:
    """The application's figures so far."""
    load = state.load
    if not load.requests:
        return "no endpoint has a version yet"
    p99 = f"{load.p99_ms:.1f} ms" if load.p99_ms is not None else "-"
    return f"{load.requests} requests ({load.rate:.0f}/s), p99 {p99}, {load.failed} failed"


def render(state: DemoState) -> RenderableType:
    """The picture; it fits into 80 columns."""
    table = Table(expand=True, box=None, padding=(0, 1, 0, 0))
    for title, justify in COLUMNS.items():
        table.add_column(title, justify=justify, no_wrap=True)
    for track in state.timeline:
        table.add_row(*_row(state, track))
    load = Text(load_line(state), style="bold red" if state.load.failed else "")
    news = Text(f"{state.mqtt_messages} MQTT messages, shares moved {state.timeline.reallocations} times", style="dim")
    title = f"Tiercel demo: {state.phase}, {state.seconds:.0f} s"
    return Panel(Group(table, Text(), load, news), title=title, border_style="cyan")


def _row(state: DemoState, track: JobTrack) -> tuple[RenderableType, ...]:
    latest = f"{track.points[-1][1]:.3g}" if track.points else "-"
    version = state.timeline.answering(track.endpoint)
    share = track.share
    return (
        Text(track.name, style="bold"),
        Text(latest),
        _way(track),
        _tiers(track),
        Text(f"{share:.0%}" if share is not None else "-"),
        Text(f"v{version}" if version is not None else "-"),
    )


def _way(track: JobTrack) -> RenderableType:
    if track.state.is_final or not track.points:
        return Text(track.state.value, style="red" if track.state in {JobState.FAILED, JobState.MISSED} else "dim")
    tier = track.next_tier
    if tier is None:
        return Text("all tiers reached", style="green")
    bar = ProgressBar(total=1.0, completed=_way_to(track, tier), width=BAR_WIDTH)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(bar, f"{tier.target:g}")
    return grid


def _way_to(track: JobTrack, tier: TierStatus) -> float:
    """How much of the way from the tier before (or the first value) to this one the metric has come, 0 to 1."""
    if track.best is None:
        return 0.0
    start = track.points[0][1] if tier.number == 1 else track.tiers[tier.number - 2].target
    way = tier.target - start
    return min(1.0, max(0.0, (track.best - start) / way)) if way else 1.0


def _tiers(track: JobTrack) -> Text:
    text = Text()
    for tier in track.tiers:
        mark, style = _MARKS[tier.state]
        text.append(f"{mark}{tier.target:g} ", style=style)
    return text


def _short(track: JobTrack) -> str:
    latest = f"{track.points[-1][1]:.3g}" if track.points else track.state.value
    share = f" at {track.share:.0%}" if track.share is not None else ""
    return f"{track.name} {latest}{share} ({len(track.delivered)}/{len(track.tiers)})"
