from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.simulated_report import (
    ENDPOINTS,
    KINDS,
    KNOWING_RIVAL,
    OURS,
    POLICIES,
    draw_classes,
    draw_papers,
    endpoints_section,
    papers_section,
    policies_section,
    readme_section,
    served_section,
    tuning_section,
)
from benchmarks.simulated_workloads import FAIR_SLICES

Json = dict[str, Any]


def summary(mean: float) -> Json:
    return {"mean": mean, "interval": [mean - 0.01, mean + 0.02], "median": mean, "least": mean, "most": mean}


def policies() -> Json:
    row = {"time_to_tier_1": summary(0.5), "worst_finish": summary(2.0), "makespan": summary(0.9)}
    best = {**row, "time_to_tier_1": summary(0.25)}
    return {"tables": {kind: {arm: best if arm == "utility" else row for arm in POLICIES} for kind in KINDS}}


def papers() -> Json:
    def arms(policy: str) -> Json:
        names = (f"{policy}, defaults", policy, *OURS, FAIR_SLICES, "fifo", KNOWING_RIVAL)
        measures = ("best_finish", "best_tier_1", "makespan")
        means = {"mean_finish": summary(0.05), "mean_tier_1": summary(0.05)}
        return {
            arm: {**means, **{name: summary(0.1 * place) for name in measures}} for place, arm in enumerate(names, 1)
        }

    return {
        "seeds": 20,
        **{
            policy: {"headline": "up to 42 %", "measure": measure, "schedules": {schedule: arms(policy)}}
            for policy, measure, schedule in (
                ("flowcon", "best_finish", "3 jobs, 40 s apart"),
                ("tradl", "best_tier_1", "10 jobs in 200 s"),
                ("specon", "makespan", "50 jobs in 500 s, 4 nodes"),
            )
        },
    }


def endpoints() -> Json:
    counts = {"satisfied": {"median": 9.7}, "in_time": {"median": 10.0}}
    return {
        "cases": {"10 on 1, varied, burst": {"fair": counts, "dqoes": counts, "utility": counts}},
        "over_time": {
            policy: [[0.0, 1, 2, 7], [25.0, 0, 10, 0]] for policy in ("fair", "dqoes", "utility", "dqoes, literal")
        },
    }


def test_policies_are_shown_with_what_they_cost() -> None:
    text = policies_section(policies())
    assert "| **`utility`** | 0.250 | 0.250 | 0.250 | 0.250 |" in text
    assert "| `fifo` | 0.500 | 0.500 | 0.500 | 0.500 |" in text
    assert "| `fifo` | 2.0, 0.90 | 2.0, 0.90 | 2.0, 0.90 | 2.0, 0.90 |" in text


def test_a_paper_is_shown_by_its_own_measure() -> None:
    text = papers_section(papers())
    assert "`flowcon`: completion of the job that gains most (the paper: up to 42 %), and the mean over jobs" in text
    assert text.count("s apart | 50.0 % (49.0 … 52.0); 5.0 % | 10.0 % (9.0 … 12.0); 5.0 % | 20.0 % (19.0") == 1


def test_the_readme_shows_each_paper_beside_a_plain_order_and_a_rival_that_knows_as_much() -> None:
    found = endpoints()
    found["cases"][ENDPOINTS] = {policy: {"satisfied": {"mean": 9.7}} for policy in ("fair", "dqoes", "utility")}
    text = readme_section(papers(), found)
    assert "| TRADL: time to the first target, mean of ten jobs in 200 s | 5.0 % | 5.0 % | 5.0 % |" in text
    assert "| DQoES: endpoints at their delay objectives, of 40" in text


def test_endpoints_are_shown_satisfied_and_in_time() -> None:
    assert "| 10 on 1, varied, burst | 9.7 (10.0) | 9.7 (10.0) | 9.7 (10.0) |" in endpoints_section(endpoints())


def test_served_quality_is_shown_by_load() -> None:
    row = {"served_quality": summary(1.2), "in_objective": 0.5}
    text = served_section({"loads": {load: {"fair": row, "utility": row} for load in ("0.3", "1.1")}})
    assert text.splitlines()[0] == "| requests want, of the nodes' CPU | 30% | 110% |"
    assert text.splitlines()[-1] == "| `utility` | 1.200 (0.50) | 1.200 (0.50) |"


def test_tuning_is_shown_with_the_best_at_the_end() -> None:
    def found(score: float) -> Json:
        by_kind = {kind: summary(score) for kind in KINDS}
        return {"default": by_kind, "tuned": by_kind, "score_of_tuned": score}

    lines = tuning_section({"utility": found(0.5), "fifo": found(0.75)}).splitlines()
    assert lines[2] == "| `fifo` | 0.750, 0.750 | 0.750, 0.750 | 0.750, 0.750 | 0.750, 0.750 |"
    assert lines[3].startswith("| **`utility`** | 0.500, 0.500 |")


def test_plots_are_drawn(tmp_path: Path) -> None:
    draw_papers(papers(), tmp_path / "papers.png")
    draw_classes(endpoints(), tmp_path / "classes.png")
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2
