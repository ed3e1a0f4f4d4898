"""Plots of live runs, into PNG files beside the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from benchmarks.plot import COLOURS, FAINT, INK, STYLE
from benchmarks.scheduling.analysis import by_block
from benchmarks.scheduling.outcome import JobOutcome, RunOutcome

SHOWN = ("fair", "fair-slices", "flowcon", "tradl", "fifo", "utility", "utility-history", "srpt-oracle", "dqoes")
"""Arms that are drawn, in this order, as far as they ran."""

SIDE_BY_SIDE = ("fair", "flowcon", "tradl", "utility-history", "utility")
"""Arms whose course is drawn; at most three, the first and the last among them."""

ARM_COLOURS = dict(zip(SHOWN, ["#777777", "#000000", *COLOURS, "#8B4513"], strict=True))
STAGES = ("waiting for its start", "before tier 1", "before tier 2", "all tiers reached")
STAGE_COLOURS = ("#DDDDDD", "#D55E00", "#56B4E9", "#009E73")


def draw_all(outcomes: Sequence[RunOutcome], folder: Path) -> list[Path]:
    """Draw everything that the runs give reason to.

    Returns:
        What was drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    blocks = by_block(outcomes)
    runs = _course_of(blocks)
    if runs:
        drawn.append(draw_courses(runs, folder / "scheduling-shares.png", _draw_shares, "CPU share"))
        drawn.append(draw_courses(runs, folder / "scheduling-progress.png", _draw_progress, "Way to tier 2"))
        drawn.append(draw_courses(runs, folder / "scheduling-stages.png", _draw_stages, "Jobs"))
    complete = [run for arms in blocks.values() for run in arms.values()]
    if complete:
        drawn.append(draw_times(complete, folder / "scheduling-time-to-tier.png"))
    if any(run.served is not None for run in complete):
        drawn.append(draw_served(complete, folder / "scheduling-served.png"))
    return drawn


def _course_of(blocks: Mapping[str, Mapping[str, RunOutcome]]) -> list[RunOutcome]:
    """Runs of one block whose course is drawn: of that with most of the arms that are worth it."""
    shown = [[runs[arm] for arm in SIDE_BY_SIDE if arm in runs] for runs in blocks.values()]
    best = max(shown, key=len, default=[])
    return best if len(best) <= 3 else [best[0], best[-3], best[-1]]


def draw_courses(runs: Sequence[RunOutcome], path: Path, draw: Callable[[Axes, RunOutcome], None], label: str) -> Path:
    """One panel for each run of a block, one below the other, over the same time."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.6 * len(runs) + 0.4), layout="constrained")
        panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        for panel, run in zip(panels, runs, strict=True):
            draw(panel, run)
            panel.set_title(f"{run.arm} (schedule {run.block})")
            panel.set_ylabel(label)
        panels[-1].set_xlim(0, max(run.makespan_seconds for run in runs))
        panels[-1].set_xlabel("Seconds since the schedule began")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False)
        figure.savefig(path, dpi=120, facecolor="white")
    return path


def share_at(job: JobOutcome, seconds: float) -> float:
    """Fraction of the node's CPU that a job was given at a moment; 0 before its start and after its end."""
    if job.finished_seconds is not None and seconds >= job.submitted_seconds + job.finished_seconds:
        return 0.0
    return next((weight for since, weight in reversed(job.shares) if since <= seconds), 0.0)


def stage_at(job: JobOutcome, seconds: float) -> int | None:
    """Index into :data:`STAGES` at a moment, or None before its submission and after its end."""
    since = seconds - job.submitted_seconds
    if since < 0 or (job.finished_seconds is not None and since >= job.finished_seconds):
        return None
    if not job.shares or seconds < job.shares[0][0]:
        return 0
    reached = sum(each is not None and each <= since for each in job.reached_seconds)
    return 1 + min(reached, 2)


def way_to_last_tier(job: JobOutcome) -> list[tuple[float, float]]:
    """Seconds and the part of the way from the first report to the last tier's target, best so far."""
    if not job.points:
        return []
    best, way = 0.0, []
    for point in job.points:
        best = max(best, way_part(job, point.value))
        way.append((point.at_seconds, best))
    return way


def way_part(job: JobOutcome, value: float) -> float:
    """The part of the way from the first report to the last tier's target that a value stands for."""
    first, target = job.points[0].value, job.targets[-1]
    return (value - first) / (target - first) if target != first else 1.0


def _draw_shares(panel: Axes, run: RunOutcome) -> None:
    changes = {at for job in run.jobs for at, _ in job.shares}
    ends = {job.submitted_seconds + (job.finished_seconds or 0.0) for job in run.jobs}
    times = sorted({0.0, run.makespan_seconds} | changes | ends)
    rows = [[share_at(job, at) for at in times] for job in run.jobs]
    colours = [_job_colour(number) for number in range(len(run.jobs))]
    labels = [job.name for job in run.jobs]
    panel.stackplot(times, rows, step="post", colors=colours, labels=labels, edgecolor="white", linewidth=0.5)
    panel.set_ylim(0, 1)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_progress(panel: Axes, run: RunOutcome) -> None:
    for number, job in enumerate(run.jobs):
        colour = _job_colour(number)
        way = way_to_last_tier(job)
        panel.plot([at for at, _ in way], [part for _, part in way], color=colour, label=job.name, linewidth=1.5)
        for target, reached in zip(job.targets, job.reached_seconds, strict=True):
            if reached is not None:
                at, part = job.submitted_seconds + reached, way_part(job, target)
                panel.plot(at, part, "o", color=colour, markersize=7, markeredgecolor="white", zorder=5)
    panel.set_ylim(0, 1.1)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panel.grid(axis="y", color=FAINT, alpha=0.35)


def _draw_stages(panel: Axes, run: RunOutcome) -> None:
    times = np.arange(0.0, run.makespan_seconds, 0.1)
    stages = [[stage_at(job, float(at)) for job in run.jobs] for at in times]
    rows = [[moment.count(stage) for moment in stages] for stage in range(len(STAGES))]
    panel.stackplot(times, rows, step="post", colors=STAGE_COLOURS, labels=STAGES)
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_ylim(0, len(run.jobs))


def draw_times(runs: Sequence[RunOutcome], path: Path) -> Path:
    """For each arm, which part of all jobs had reached tiers 1 and 2 by when, where all these arms ran."""
    arms, blocks = comparable(runs)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for number, panel in enumerate(panels):
            for arm in arms:
                jobs = [job for run in runs if run.arm == arm and run.block in blocks for job in run.jobs]
                times = sorted(each for job in jobs if (each := job.reached_seconds[number]) is not None)
                parts = np.arange(1, len(times) + 1) / max(len(times), 1)
                panel.step([0.0, *times], [0.0, *parts], where="post", color=ARM_COLOURS[arm], label=arm, linewidth=1.8)
            panel.set_title(f"Jobs that had reached tier {number + 1}")
            panel.set_xlabel("Seconds since the job's submission")
            panel.grid(color=FAINT, alpha=0.35)
            panel.set_xlim(left=0)
        figure.suptitle(f"Schedules {', '.join(blocks)}", fontsize=9)
        panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, dpi=120, facecolor="white")
    return path


def comparable(runs: Sequence[RunOutcome]) -> tuple[list[str], list[str]]:
    """The arms of the block that most arms ran in, and all blocks that all of these ran in."""
    found = by_block(runs)
    most = max(found.values(), key=lambda arms: len(set(arms) & set(SHOWN)))
    arms = [arm for arm in SHOWN if arm in most]
    return arms, [block for block, each in found.items() if set(arms) <= set(each)]


def draw_served(runs: Sequence[RunOutcome], path: Path) -> Path:
    """Endpoints within their objective and served quality over time, of the first block under load."""
    loaded = [run for run in runs if run.served is not None]
    mine = [run for run in loaded if run.block == loaded[0].block]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.6), layout="constrained")
        counts, quality = figure.subplots(2, 1, sharex=True)
        for run in sorted(mine, key=lambda run: SHOWN.index(run.arm) if run.arm in SHOWN else len(SHOWN)):
            colour = ARM_COLOURS.get(run.arm, INK)
            if run.served is not None:
                seconds = range(len(run.served.quality))
                counts.step(seconds, run.served.satisfied, where="post", color=colour, label=run.arm, linewidth=1.6)
                quality.step(seconds, run.served.quality, where="post", color=colour, linewidth=1.6)
        counts.set_title(f"Endpoints whose mean delay was within 50 ms (schedule {loaded[0].block})")
        quality.set_title("Accuracy of the answers within 50 ms, summed over endpoints")
        quality.set_xlabel("Seconds since the schedule began")
        handles, labels = counts.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(path, dpi=120, facecolor="white")
    return path


def _job_colour(number: int) -> str:
    return mpl.colors.to_hex(mpl.colormaps["tab20"](number % 20))
