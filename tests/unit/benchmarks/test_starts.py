from __future__ import annotations

import copy

from benchmarks.starts.__main__ import section_of
from benchmarks.starts.bars import bars_of

RUN = {"began_seconds": 0.04, "step_seconds": 0.05, "cpu_seconds": 0.01, "loss": "0x1p+1"}
FIGURES = {
    "warm": [RUN, RUN],
    "cold": [{**RUN, "step_seconds": 2.0}],
    "resumed": [{**RUN, "stop_seconds": 0.1}],
}


def test_bars_hold_where_warm_is_quick_and_learns_the_same() -> None:
    assert all(bar.holds for bar in bars_of(FIGURES))
    assert "| cold | 0.040 | 2.000 | 2.000 | 0.010 |" in section_of(FIGURES, bars_of(FIGURES))


def test_each_bar_can_be_missed() -> None:
    changes = ({"step_seconds": 3.0}, {"loss": "0x1p+2"})
    missed = []
    for change in changes:
        figures = copy.deepcopy(FIGURES)
        figures["warm"] = [{**RUN, **change}]
        missed.append([bar.name.split(",")[0] for bar in bars_of(figures) if not bar.holds])
    assert missed == [["order to first step", "cold by warm"], ["different losses of the first step"]]
    slow = FIGURES | {"resumed": [{**RUN, "stop_seconds": 1.0}]}
    assert [bar.holds for bar in bars_of(slow)] == [True, True, False, True]
    assert not bars_of({"warm": [], "cold": [], "resumed": []})[0].holds


def test_containers_have_bars_of_their_own_where_they_were_measured() -> None:
    figures = FIGURES | {"container_warm": [RUN], "container_cold": [RUN]}
    assert all(bar.holds for bar in bars_of(figures))
    assert "| container, warm | 0.040 | 0.050 | 0.050 | 0.010 |" in section_of(figures, bars_of(figures))
    figures["container_warm"] = [{**RUN, "step_seconds": 0.6, "loss": "0x1p+2"}]
    missed = [bar.name.split(",")[0] for bar in bars_of(figures) if not bar.holds]
    assert missed == ["order to first step in a container", "different losses of the first step in containers"]
