"""Tells how far the runs have come: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.scheduling.analysis import time_to_tier
from benchmarks.scheduling.matrix import Block, Step


class Teller:
    """Shows steps as they are told; a context manager."""

    def __init__(self, console: Console, blocks: Sequence[Block], minutes: float | None) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._console = console
        title = "Runs" if minutes is None else f"Runs, at most {minutes:g} minutes"
        self._task = self._progress.add_task(title, total=sum(map(len, blocks)))
        self._sizes = {block[0].schedule.block: len(block) for block in blocks}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def tell(self, step: Step) -> None:
        """Take in a step."""
        self._progress.advance(self._task, 1 if step.run is not None else self._sizes[step.block])
        line = line_of(step)
        if line:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def line_of(step: Step) -> str:
    """A step in a line; empty for a block that there was no time for."""
    if step.run is None or step.outcome is None:
        return ""
    outcome = step.outcome
    means = [time_to_tier(number)(outcome) for number in (1, 2)]
    tiers = ", ".join("-" if mean is None else f"{mean:.1f} s" for mean in means)
    notes = "" if outcome.complete else "  NOT COMPLETE"
    notes += "  (kept from before)" if step.again else ""
    return f"{step.block:<12} {step.run.arm.name:<22} tiers {tiers}; all {outcome.makespan_seconds:.1f} s{notes}"
