"""What a restart is expected to cost, by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testing.scheduling import job, snapshot
from tiercel.broker.scheduling.interface import PRIOR_START_SECONDS, PRIOR_STOP_SECONDS, RestartCost
from tiercel.broker.scheduling.restarts import Restarts, cost_of
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT
from tiercel.core.starts import Start

PRIOR = PRIOR_STOP_SECONDS + PRIOR_START_SECONDS


def cold(*seconds: float, node_id: str = "a", stop: float | None = None) -> list[Start]:
    return [Start(node_id, each, each, stop_seconds=stop) for each in seconds]


def warm(*seconds: float, node_id: str = "a", stop: float | None = None) -> list[Start]:
    return [Start(node_id, each, each, warm=True, stop_seconds=stop) for each in seconds]


def seconds(starts: list[Start], node_id: str = "a", prior: float | None = None) -> float:
    seen = replace(snapshot([]), restarts={"w": cost_of(starts)} if starts else {})
    return seen.restart_seconds(replace(job("j"), workload="w"), node_id, prior)


def test_until_something_is_measured_it_is_what_most_programs_take() -> None:
    assert seconds([]) == PRIOR
    assert seconds([], prior=12.0) == 12.0
    assert seconds(cold(7.0)) == PRIOR_STOP_SECONDS + 7.0
    assert seconds(cold(7.0), prior=12.0) == 12.0, "half of it is not known yet"
    assert seconds(cold(7.0, stop=1.0), prior=12.0) == 8.0


def test_what_the_document_shows_goes_by_it() -> None:
    text = (Path(__file__).parents[4] / "docs" / "policies.md").read_text()
    _, code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    runs = replace(job("j"), workload="w", migratable=True)
    dear, cheap = (replace(snapshot([runs]), restarts={"w": cost_of(starts)}) for starts in (cold(7.0), warm(0.1)))
    assert [names["is_worth_moving"](seen, runs, "a", 6.0) for seen in (dear, cheap)] == [False, True]


def test_one_start_that_waited_for_something_changes_nothing() -> None:
    assert seconds(cold(2.0, 2.2, 120.0, 2.1, stop=1.0)) == pytest.approx(1.0 + 2.15)
    assert seconds(cold(2.0, 120.0, 2.1, 300.0, 2.2, stop=1.0)) == pytest.approx(1.0 + 2.2)


def test_the_latest_five_count() -> None:
    assert seconds(cold(*[9.0] * 8, *[2.0] * 3, stop=0.0)) == 2.0
    assert seconds(cold(*[9.0] * 8, *[2.0] * 2, stop=0.0)) == 9.0


def test_the_next_start_on_a_node_is_like_the_newest_there() -> None:
    assert seconds(cold(4.0, 4.2, stop=0.1) + warm(0.05)) == pytest.approx(0.15)
    assert seconds(warm(0.05, 0.06) + cold(4.0, stop=0.1)) == pytest.approx(4.1)


def test_where_the_program_has_not_run_yet_it_is_expected_cold() -> None:
    both = cold(4.0, stop=0.5) + warm(0.05, 0.05)
    assert seconds(both, "a") == pytest.approx(0.55)
    assert seconds(both, "b") == pytest.approx(4.5)
    assert seconds(warm(0.05, stop=0.5), "b") == 0.5 + PRIOR_START_SECONDS


def test_programs_are_kept_apart_and_within_bounds() -> None:
    restarts = Restarts()
    for number in range(WORKLOADS_KEPT + 3):
        restarts.put(f"w{number}", "job", tuple(cold(float(number))))
    shown = restarts.by_workload()
    assert len(shown) == WORKLOADS_KEPT
    assert "w0" not in shown
    assert shown["w7"] == RestartCost(None, 7.0, {"a": 7.0}, 7.0)
    assert restarts.by_workload() is shown
    for number in range(RUNS_KEPT_PER_WORKLOAD + 5):
        restarts.put("w7", f"job{number}", tuple(cold(1.0)))
    assert restarts.by_workload()["w7"].start_seconds["a"] == 1.0
    restarts.put("w7", "empty", ())
    restarts.put("w7", "job12", tuple(cold(1.0, 5.0, 5.0, 5.0, 5.0)))
    assert restarts.by_workload()["w7"].start_seconds["a"] == 5.0, "all that is known of a job is put at once"
