"""What is made of a comparison: paired intervals, bars, and the section of the document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.qoe import compare
from benchmarks.qoe.bars import bars_of, behind_at
from benchmarks.qoe.tables import draw, make_section
from benchmarks.results import Bar
from testing.pool.arrivals import SHAPES, Shape
from tiercel.serving.scheduling.utility import FORMS, Form


def point(heuristic: float, form: Form = "soft", shape: Shape = "bursty") -> compare.Point:
    means = {"heuristic": [heuristic, heuristic + 0.02], "static a": [0.5, 0.52], "static b": [0.3, 0.9]}
    means["learned"] = means["heuristic"]
    return compare.Point(form, shape, 0.8, means, dict.fromkeys(means, 1.0), 3.0)


def test_differences_are_paired_over_seeds() -> None:
    mean, half_width = compare.paired([1.0, 2.0, 3.0], [0.9, 2.0, 2.6])
    # Differences 0.1, 0.0 and 0.4 with standard deviation 0.2082; Student's t of two degrees of freedom is 4.303.
    assert mean == pytest.approx(1 / 6)
    assert half_width == pytest.approx(4.303 * 0.2082 / 3**0.5, rel=1e-3)


def figures_of(points: Sequence[compare.Point], share: float = 0.98) -> dict[str, Any]:
    return {
        "points": [each.to_json() | {"over_rival_together": behind_at(each, len(points))} for each in points],
        "part_of_optimum": {"heuristic": {"mean": share, "half_width_95": 0.01}},
    }


def behind(points: Sequence[compare.Point]) -> Bar:
    return bars_of(figures_of(points))[0]


def test_a_point_is_behind_only_by_more_than_chance() -> None:
    # The best variant alone is b with 0.6 in the mean, but so unsteady that 0.51 may be as good.
    found = behind([point(0.5), point(0.7)])
    assert found.value == 0
    steady = compare.Point("soft", "bursty", 0.8, {"heuristic": [0.5, 0.6], "static a": [0.6, 0.7]}, {}, 3.0)
    assert behind([steady, point(0.7)]).value == 1


def test_what_is_said_of_many_points_needs_more_than_what_is_said_of_one() -> None:
    values = {"heuristic": [0.5, 0.5, 0.5, 0.5], "static a": [0.52, 0.51, 0.53, 0.52]}
    shaky = compare.Point("soft", "bursty", 0.8, values, {}, 3.0)
    assert behind([shaky]).value == 1
    assert behind([shaky] + [point(0.7)] * 71).value == 0


def test_the_whole_is_compared_too() -> None:
    _, mean, share = bars_of(figures_of([point(0.5), point(0.7)]))
    assert mean.value == pytest.approx(0.01)
    assert mean.holds
    assert share.value == 0.98
    assert share.holds
    assert not bars_of(figures_of([point(0.5)], share=0.94))[2].holds


def result() -> dict[str, Any]:
    points = [point(0.7, form, shape) for form in FORMS for shape in SHAPES]
    return {
        "command": "a command",
        "figures": {
            "profiles": [{"name": "a", "accuracy": 0.9, "seconds": [1e-5, 2e-5]}],
            "objective_seconds": 0.001,
            "workers": 2,
            "seeds": 2,
            "points": [each.to_json() for each in points],
            "part_of_optimum": {"learned": {"mean": 0.98, "half_width_95": 0.01}},
        },
        "bars": [bar.to_json() for bar in bars_of(figures_of(points))],
    }


def test_the_section_has_every_scheduler() -> None:
    content = make_section(result(), "plots/qoe.png")
    assert "| soft | bursty | 0.7100 | 0.5100 | 0.6000 | 0.7100 |" in content
    assert "(plots/qoe.png)" in content


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    draw(result()["figures"]["points"], tmp_path / "plots" / "qoe.png")
    assert (tmp_path / "plots" / "qoe.png").read_bytes().startswith(b"\x89PNG")
