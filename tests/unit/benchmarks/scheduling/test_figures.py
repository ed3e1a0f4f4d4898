from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.results import KEPT, Bar, read_result
from benchmarks.scheduling import bars as judge
from benchmarks.scheduling.figures import make_figures
from benchmarks.scheduling.matrix import outcomes_in
from benchmarks.scheduling.outcome import Predicted, RunOutcome, Served
from benchmarks.scheduling.plots import comparable, draw_all, share_at, stage_at, way_to_last_tier
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.tables import make_section
from tests.support.scheduling_runs import job_outcome, recording, run_outcome
from tiercel.core.what_if import Span

KNOWN = Recordings({("cnn-small", seed): recording(training_seed=seed) for seed in range(3)})
MACHINE = {"cores": 2, "cpu": "a CPU", "kernel": "6.1"}
FIRST = {"fair": 4.0, "fair-slices": 3.6, "fifo": 2.2, "utility": 2.0, "utility-history": 1.8}


def runs_of(repetitions: int = 3) -> list[RunOutcome]:
    quality = {"fair": 0.4, "fifo": 0.5, "utility": 0.6, "srpt-oracle": 0.7}
    runs = []
    for repetition in range(repetitions):
        for arm, at in FIRST.items():
            jobs = [job_outcome(f"job-{number}", reached=(at + number, at + 2.0 + number)) for number in range(2)]
            runs.append(run_outcome(arm, jobs, repetition=repetition))
    for arm, each in quality.items():
        served = Served((0.0, each, each, each), (0, 1, 1, 1), (0, 1, 1, 1), 40, 0, 9.0)
        runs.append(run_outcome(arm, schedule="mixed", served=served))
    return runs


def bars_of(runs: list[RunOutcome]) -> dict[str, Bar]:
    return {bar.name: bar for bar in judge.bars_of(make_figures(runs, KNOWN, 2, {}, len(runs)))}


def test_bars_say_what_holds() -> None:
    bars = bars_of(runs_of())
    # Means over two jobs: 4.5 s under fair, 4.1 s with slices, 2.7 s, 2.5 s and 2.3 s.
    below_fair = bars["time to tier 1, utility below fair"]
    assert below_fair.value == pytest.approx(44.44, abs=0.01)
    assert not below_fair.holds
    assert bars["time to tier 1, utility-history below fair"].holds
    assert bars["time to tier 1, utility below fifo"].value == pytest.approx(7.41, abs=0.01)
    assert bars["served quality, utility above the best other"].value == pytest.approx(20.0, abs=0.1)
    above = make_figures(runs_of(), KNOWN, 2, {}, 1)["served"]["above"]
    assert {arm: found["mean"] for arm, found in above["utility"].items()} == pytest.approx(
        {"fair": 0.5, "fifo": 0.2, "srpt-oracle": -0.1429}, abs=1e-4
    )
    # Each of ours by itself: the better one of two would flatter.
    assert bars["served quality, utility-history above the best other"].value is None
    assert bars["tiers delivered"].holds
    assert bars["longest makespan of any policy above fair's"].value == 0.0


def test_what_brokers_predicted_is_held_against_what_came() -> None:
    """Twice too late in each block, which the blocks before correct; before the last tier another job came."""
    made = (Predicted(1.0, Span(8.0, 4.0, 12.0), 4.0), Predicted(1.0, Span(6.0, 2.0, 9.0), 3.0))
    met = Predicted(0.0, Span(4.0, 2.0, 9.0), 4.0)
    jobs = [job_outcome("a"), job_outcome("b", submitted=0.5)]
    runs = [
        dataclasses.replace(run_outcome(arm, jobs, repetition=number), predictions=(*made * 10, met))
        for arm in ("utility-history", "utility", "srpt-oracle")
        for number in range(3)
    ]
    figures = make_figures(runs, KNOWN, 2, {}, len(runs))
    assert set(figures["what_if"]) == {"utility", "utility-history"}
    found = figures["what_if"]["utility-history"]
    assert [found[way]["predictions"] for way in ("drawn", "learnt", "alone")] == [63, 42, 60]
    assert found["drawn"]["median_error"] == found["alone"]["median_error"] == 1.0
    assert found["learnt"]["median_error"] < 0.5
    bars = {bar.name: bar.holds for bar in judge.bars_of(figures) if bar.name.startswith("what-if")}
    assert set(bars) == {"what-if, utility-history: median error of time to tier"}
    section = make_section(figures, judge.bars_of(figures), command="c", machine=MACHINE, plots=[])
    assert "| utility-history | 63 | 60 | 100 % |" in section


def test_what_was_not_run_does_not_hold() -> None:
    bars = bars_of([run_outcome("fair")])
    assert bars["time to tier 1, utility below fair"].value is None
    assert bars["served quality, utility above the best other"].value is None
    assert not bars["worst finish of a job, utility against fair"].holds


def sane(run: RunOutcome, planned: int = 1) -> list[bool]:
    return [bar.holds for bar in judge.sanity_bars(make_figures([run], KNOWN, 2, {}, planned))]


def test_a_run_that_is_missing_or_left_something_behind_fails_the_sanity_check() -> None:
    assert all(sane(run_outcome()))
    assert not all(sane(run_outcome(), planned=2))
    assert not all(sane(dataclasses.replace(run_outcome(), errors=1)))
    broken = run_outcome(jobs=[job_outcome(reached=(1.0, None))])
    assert sane(broken) == [False, False, True, True]


def test_figures_are_json_and_name_what_is_missing() -> None:
    runs = [*runs_of(), run_outcome("tradl", [job_outcome(finished=None)])]
    figures = make_figures(runs, KNOWN, 2, {"slaq": "There is no policy 'slaq'."}, len(runs))
    assert json.loads(json.dumps(figures, allow_nan=False))["missing_arms"] == {"slaq": "There is no policy 'slaq'."}
    assert figures["incomplete_runs"] == ["small-0 tradl"]
    assert figures["arms"]["fair"]["runs"] == 3


def test_the_section_shows_bars_policies_and_what_was_left_out() -> None:
    runs = runs_of()
    figures = make_figures(runs, KNOWN, 2, {"slaq": "There is no policy 'slaq'."}, len(runs))
    text = make_section(figures, judge.bars_of(figures), command="make it", machine=MACHINE, plots=["plots/a.png"])
    for part in (
        "`make it`",
        "### Below `fair`",
        "### Below `fifo`",
        "| utility | 3 |",
        "`slaq` did not run",
        "plots/a.png",
    ):
        assert part in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) < 500


def test_a_job_has_its_last_share_until_its_end() -> None:
    job = job_outcome(submitted=1.0, shares=((1.5, 0.5), (4.0, 0.25)), finished=9.0)
    assert [share_at(job, at) for at in (1.0, 1.5, 5.0, 9.9, 10.0)] == [0.0, 0.5, 0.25, 0.25, 0.0]


def test_a_job_goes_through_its_stages() -> None:
    job = job_outcome(submitted=1.0, shares=((1.5, 0.5),), reached=(4.0, 6.0), finished=9.0)
    assert [stage_at(job, at) for at in (0.5, 1.2, 2.0, 5.0, 7.0, 10.0)] == [None, 0, 1, 2, 3, None]


def test_the_way_ends_at_the_last_tier() -> None:
    way = way_to_last_tier(job_outcome(reached=(4.0, 6.0)))
    assert way[0] == (1.0, 0.0)
    assert way[-1] == (6.0, 1.0)


def test_only_arms_that_met_the_same_jobs_are_held_against_each_other() -> None:
    runs = [run_outcome(arm, repetition=repetition) for arm in ("fair", "utility") for repetition in range(2)]
    runs += [run_outcome("fifo", repetition=1), run_outcome("dqoes", repetition=2), run_outcome("fair", repetition=2)]
    assert comparable(runs) == (["fair", "fifo", "utility"], ["small-1"])
    assert comparable(runs[:4]) == (["fair", "utility"], ["small-0", "small-1"])


def test_plots_are_drawn(tmp_path: Path) -> None:
    drawn = draw_all(runs_of(), tmp_path)
    assert [path.name for path in drawn] == [
        "scheduling-shares.png",
        "scheduling-progress.png",
        "scheduling-stages.png",
        "scheduling-time-to-tier.png",
        "scheduling-served.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_the_kept_result_is_made_of_the_kept_runs() -> None:
    kept, runs = read_result(KEPT / "scheduling-live.json").figures, outcomes_in(KEPT / "scheduling-live")
    told = [(run.block, run.arm, run.makespan_seconds, [job.finished_seconds for job in run.jobs]) for run in runs]
    assert told == [
        (row["block"], row["arm"], row["makespan"], [job[-2] for job in row["jobs"].values()]) for row in kept["table"]
    ]
    assert kept["commits"] == sorted({run.origin.commit for run in runs})
    assert len({(run.block, run.origin) for run in runs}) == len(kept["blocks"]), "a block is of one commit and machine"
