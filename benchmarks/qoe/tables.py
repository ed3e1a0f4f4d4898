"""The section of ``docs/results.md`` about schedulers of variants, made of the result file, and its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plot import COLOURS, STYLE
from benchmarks.results import Bar
from benchmarks.sections import bars_table, table
from testing.pool.arrivals import SHAPES
from tiercel.serving.scheduling.utility import FORMS

SECTION = "qoe"
"""Its name in ``docs/results.md``."""

Json = Mapping[str, Any]


def make_section(result: Json, plot: str) -> str:
    """The section's text."""
    figures = result["figures"]
    runs = "; ".join(
        f"`{each['name']}` {each['accuracy']:.3f}, {1e6 * each['seconds'][0]:.0f} µs a row, "
        f"{1e6 * each['seconds'][-1]:.0f} µs for {2 ** (len(each['seconds']) - 1)}"
        for each in figures["profiles"]
    )
    lines = [
        "## Endpoints with variants: which scheduler",
        "",
        (
            f"Simulated with profiles measured on real models ({runs}), which no scheduler was tuned or trained on; "
            f"{figures['workers']} workers, objective {1e3 * figures['objective_seconds']:.2f} ms, {figures['seeds']} "
            f"seeds of arrivals at each point, the same for all schedulers. `{result['command']}`."
        ),
        "",
        bars_table("bar", map(Bar.from_json, result["bars"])),
    ]
    lines += ["", "Mean utility of a request over all loads:", "", _means(figures["points"]), ""]
    lines += [
        "Part of what one who knows all arrivals can earn (one worker, small cases, ± 95 %): "
        + ", ".join(
            f"`{name}` {share['mean']:.3f} ± {share['half_width_95']:.3f}"
            for name, share in figures["part_of_optimum"].items()
        )
        + ".",
        "",
        f"![Utility over load by scheduler]({plot})",
    ]
    return "\n".join(lines)


def _means(points: Sequence[Json]) -> str:
    names = list(points[0]["mean_utility"])
    rows = []
    for form in FORMS:
        for shape in SHAPES:
            chosen = [each["mean_utility"] for each in points if (each["utility"], each["arrivals"]) == (form, shape)]
            cells = (f"{sum(each[name] for each in chosen) / len(chosen):.4f}" for name in names)
            rows.append((form, shape, *cells))
    return table(("utility", "arrivals", *names), rows)


def draw(points: Sequence[Json], path: Path) -> None:
    """Draw utility over load, a panel for each utility and shape of arrivals, into a PNG file."""
    names = list(points[0]["mean_utility"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 8.0), layout="constrained")
        panels = figure.subplots(len(FORMS), len(SHAPES), sharex=True, sharey="row", squeeze=False)
        for row, form in zip(panels, FORMS, strict=True):
            for panel, shape in zip(row, SHAPES, strict=True):
                chosen = [each for each in points if (each["utility"], each["arrivals"]) == (form, shape)]
                _draw_panel(panel, chosen, names)
                panel.set_title(f"{form}, {shape}")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
        figure.supxlabel("load over the fastest variant's capacity")
        figure.supylabel("mean utility of a request")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)


def _draw_panel(panel: Axes, points: Sequence[Json], names: Sequence[str]) -> None:
    statics = iter(("-.", "--", ":", (0, (1, 3))))
    colours = iter(COLOURS)
    for name in names:
        if name.startswith("static "):
            look: dict[str, Any] = {"color": "#777777", "linestyle": next(statics, ":"), "linewidth": 1.0}
        else:
            look = {"color": next(colours), "linewidth": 1.6}
        panel.plot(
            [each["load"] for each in points], [each["mean_utility"][name] for each in points], label=name, **look
        )
    panel.set_ylim(bottom=0.0)
