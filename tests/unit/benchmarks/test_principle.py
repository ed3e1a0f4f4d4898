from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.principle.arms import ABLATIONS
from benchmarks.principle.real import RecordedArrivals, edited_programs, repeated_programs
from benchmarks.principle.report import section
from benchmarks.principle.runs import Runs, Trial
from benchmarks.principle.tables import ablation_of, bars_of, figures_of, summary
from benchmarks.principle.work import kinds
from benchmarks.simulated_policies import Arm, Figures
from tiercel.broker.scheduling.registry import create_policy

ALIKE = Trial("alike", 1, Arm("fair", "fair", {}), 1)


def test_draws_differ_in_their_programs_and_repeat() -> None:
    assert [kind.workloads for kind in kinds(1)] == [kind.workloads for kind in kinds(1)]
    assert all(one.workloads != other.workloads for one, other in zip(kinds(1), kinds(2), strict=True))


@pytest.mark.parametrize("programs", [edited_programs, repeated_programs])
def test_recorded_programs_reach_their_first_tier_and_know_other_runs(programs: object) -> None:
    for program in programs(30, Random(1)):  # type: ignore[operator]
        run = program.workload.run(Random(2))
        reached = run.first_reaching(program.workload.tiers[0].target, program.workload.direction)
        assert reached is not None
        assert program.past
        seen = [[point.value for point in past.curve] for past in program.past]
        assert list(run.values) not in seen


def test_recorded_arrivals_keep_their_bursts_at_the_pace_asked_for() -> None:
    times = RecordedArrivals((0.0, 1.0, 2.0, 10.0, 11.0), 5.0).times(4, Random(0))
    assert times == [0.0, 1.5, 3.0, 15.0]


def test_what_was_simulated_is_not_simulated_again_and_a_cut_line_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert list(Runs(path).do([ALIKE], 1)) == [ALIKE]
    again = Runs(path)
    assert list(again.do([ALIKE], 1)) == []
    assert again.of(ALIKE).makespan > 0
    path.write_text(path.read_text()[:-20], encoding="utf-8")
    assert list(Runs(path).do([ALIKE], 1)) == [ALIKE]


def test_intervals_are_those_of_draws_and_not_of_seeds() -> None:
    assert summary([[1.0, 3.0], [2.0, 2.0]])["interval"] == [2.0, 2.0]


@pytest.mark.parametrize("arm", ABLATIONS, ids=lambda arm: arm.name)
def test_every_rule_can_be_left_out(arm: Arm) -> None:
    assert create_policy(arm.policy, dict(arm.options)).name == "utility"


def test_tables_and_bars_follow_from_what_was_simulated() -> None:
    fair = Figures(10.0, 11.0, 20.0, 30.0, 40.0, (20.0, 40.0), (5.0, 15.0), 0, 0)
    half = replace(fair, first=5.0, answer=5.5, completions=(30.0, 20.0))
    arms = {"fair": fair, "fifo": half, "las": fair, "srpt": half, "utility": half, "utility, nothing known": fair}
    found = {name: [[each, each], [each, each]] for name, each in arms.items()}
    rule = Arm("utility, no guard", "utility", {"guard_ratio": 0.0}, history=True)
    figures = {
        "kinds": figures_of({"mixed": found}),
        "ablation": ablation_of({"mixed": {**found, rule.name: found["fair"]}}, [rule]),
    }
    bars = {bar.name: bar for bar in bars_of(figures)}
    assert bars["mixed: time to tier 1 against srpt, which knows as much"].value == 1.0
    assert bars["mixed: worst finish against fair"].holds
    assert bars["mixed: nothing known: time to tier 1 against the better of fifo and las"].value == 2.0
    text = section(figures)
    assert "| **`utility`** | 0.500 (0.50 … 0.50) |" in text
    assert "| **`utility`** | 1.00, 1.00, 1.5 |" in text
    assert "| `utility`, no guard | 2.00, 1.00, 1.00, 2.00 |" in text
