"""The plot of a demo: how good each model was, what share it had, which version answered, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter
from matplotlib.typing import RcKeyType

from benchmarks.plot_labels import Label, place_labels
from benchmarks.timeline import JobTrack, Timeline
from testing.load_record import LoadRecord

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
ACCURACY_BELOW = 0.15
INK, FAINT = "#333333", "#B0B0B0"
STYLE: dict[RcKeyType, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}
Clock = Callable[[float], float]
"""From seconds since the Unix epoch to seconds on the time axis."""


def draw(timeline: Timeline, record: LoadRecord, path: Path) -> None:
    """Draw the plot into a PNG file."""
    tracks = list(timeline)
    colours = {track.id: COLOURS[index % len(COLOURS)] for index, track in enumerate(tracks)}
    metrics = list(dict.fromkeys(track.metric for track in tracks))
    heights = [0.55, *(3.0 if index == 0 else 1.7 for index in range(len(metrics))), 2.0, 0.42 * len(tracks) + 0.3, 1.5]
    began, ended = timeline.began_at, _end(timeline, record)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 1.15 * sum(heights)), layout="constrained")
        head, *axes = figure.subplots(len(heights), 1, height_ratios=heights)

        def clock(at: float) -> float:
            return at - began

        _draw_head(head, message(timeline, record), tracks, colours)
        labels = []
        for panel, metric in zip(axes, metrics, strict=False):
            labels += _draw_metric(panel, [track for track in tracks if track.metric == metric], colours, clock)
        shares, versions, latency = axes[len(metrics) :]
        _draw_shares(shares, tracks, colours, clock, ended)
        _draw_versions(versions, tracks, colours, record, (clock, ended))
        _draw_latency(latency, timeline, record, colours, clock)
        for panel in axes:
            panel.set_xlim(0, clock(ended))
            panel.tick_params(axis="x", labelbottom=panel is latency)
        latency.set_xlabel("Seconds since the first job was submitted")
        place_labels(figure, labels)
        figure.savefig(path, dpi=150, facecolor="white")


def message(timeline: Timeline, record: LoadRecord) -> str:
    """What the plot shows, in a sentence."""
    tiers = sum(len(track.tiers) for track in timeline)
    delivered = sum(len(track.delivered) for track in timeline)
    return (
        f"{delivered} of {tiers} tiers of {len(timeline.jobs)} models went live while they trained; "
        f"{record.failed} of {len(record.requests):,} requests failed"
    )


def _end(timeline: Timeline, record: LoadRecord) -> float:
    last = max((request.answered_at for request in record.requests), default=0.0)
    return max(timeline.ended_at, last, timeline.began_at + 1.0)


def _draw_head(panel: Axes, title: str, tracks: list[JobTrack], colours: Mapping[str, str]) -> None:
    panel.axis("off")
    panel.text(0, 1, title, fontsize=14, fontweight="bold", va="top", transform=panel.transAxes)
    handles = [
        Line2D([], [], color=colours[track.id], linewidth=6, label=f"{track.name} ({track.tenant})") for track in tracks
    ]
    panel.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, -0.1),
        borderpad=0,
        borderaxespad=0,
        ncols=len(handles),
        frameon=False,
        handlelength=1.0,
    )


def _draw_metric(panel: Axes, tracks: list[JobTrack], colours: Mapping[str, str], clock: Clock) -> list[Label]:
    labels = []
    smaller = tracks[0].direction.value == "min"
    metric = tracks[0].metric
    note = "smaller is better" if smaller else "on test images"
    panel.set_title(f"{metric.capitalize()}, {note}; a dot marks the report that reached a tier")
    for track in tracks:
        colour = colours[track.id]
        times = [clock(at) for at, _ in track.points]
        panel.plot(times, [value for _, value in track.points], color=colour, linewidth=1.8)
        for tier in track.tiers:
            if tier.reached_seconds is None or tier.reached_value is None:
                continue
            at = clock(track.submitted_at + tier.reached_seconds)
            panel.plot(at, tier.reached_value, "o", color=colour, markersize=8, markeredgecolor="white", zorder=5)
            labels.append(Label(panel, at, tier.reached_value, _shown(metric, tier.target), colour))
    panel.grid(axis="y", color=FAINT, alpha=0.35)
    if metric == "accuracy":
        # What matters is from the first tier on; the way there is short and steep.
        easiest = min(tier.target for track in tracks for tier in track.tiers)
        panel.set_ylim(max(0.0, easiest - ACCURACY_BELOW), 1.02)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return labels


def _draw_shares(panel: Axes, tracks: list[JobTrack], colours: Mapping[str, str], clock: Clock, ended: float) -> None:
    panel.set_title("Share of the node's CPU that each job was given")
    changes = {at for track in tracks for at, _ in track.shares} | {track.finished_at or ended for track in tracks}
    times = sorted(changes | {ended})
    rows = [[_share_at(track, at) for at in times] for track in tracks]
    panel.stackplot(
        [clock(at) for at in times],
        rows,
        step="post",
        colors=[colours[track.id] for track in tracks],
        alpha=0.85,
        edgecolor="white",
        linewidth=0.8,
    )
    panel.set_ylim(0, 1)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _share_at(track: JobTrack, at: float) -> float:
    if track.finished_at is not None and at >= track.finished_at:
        return 0.0
    return next((weight for since, weight in reversed(track.shares) if since <= at), 0.0)


def _draw_versions(
    panel: Axes,
    tracks: list[JobTrack],
    colours: Mapping[str, str],
    record: LoadRecord,
    span: tuple[Clock, float],
) -> None:
    clock, ended = span
    panel.set_title("Version that answered the application, with what its answers were worth")
    for lane, track in enumerate(tracks):
        scores = record.scores(track.endpoint)
        firsts = [(version, record.first_answer(track.endpoint, version)) for version in scores]
        starts = [(version, clock(at)) for version, at in firsts if at is not None]
        borders = [*(start for _, start in starts), clock(ended)]
        for number, ((version, start), end) in enumerate(zip(starts, borders[1:], strict=True), 1):
            strength = 0.35 + 0.6 * number / len(starts)
            panel.barh(lane, end - start, left=start, height=0.78, color=colours[track.id], alpha=strength)
            wide = (end - start) / clock(ended)
            worth = f"  {track.metric} {_shown(track.metric, scores[version][0])}"
            text = f"v{version}" + (worth if wide > 0.14 else "")
            if wide > 0.02:
                panel.text(start + 0.004 * clock(ended), lane, text, va="center", ha="left", fontsize=9, color="black")
    panel.set_yticks(range(len(tracks)), [track.endpoint for track in tracks])
    panel.set_ylim(len(tracks) - 0.45, -0.55)
    panel.tick_params(axis="y", length=0)


def _draw_latency(
    panel: Axes, timeline: Timeline, record: LoadRecord, colours: Mapping[str, str], clock: Clock
) -> None:
    panel.set_title("Latency of each request from when it was due; lines mark swaps")
    panel.set_ylabel("ms")
    panel.set_yscale("log")
    for track in timeline:
        mine = [request for request in record.requests if request.endpoint == track.endpoint and not request.failed]
        times = np.array([clock(request.at) for request in mine])
        latencies = np.array([request.latency * 1000 for request in mine])
        panel.plot(times, latencies, ".", color=colours[track.id], markersize=2.5, alpha=0.6, rasterized=True)
    for swap in timeline.swaps():
        panel.axvline(clock(swap), color=INK, linewidth=0.7, alpha=0.5)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color=FAINT, alpha=0.35)


def _shown(metric: str, value: float) -> str:
    """A metric value for people; accuracies as percentages, as on the axis."""
    return f"{value * 100:.3g}%" if metric == "accuracy" else f"{value:.4g}"
