from __future__ import annotations

import dataclasses

import pytest

from testing.scheduling import job, snapshot, tiers
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot, SrptOraclePolicy, SrptOracleSettings

Known = tuple[JobView, tuple[float, ...]]


def knowing(job_id: str, *works: float, used: float = 0.0, reached: int = 0, submitted_at: float = 0.0) -> Known:
    view = job(job_id, ladder=tiers(0.5, 0.9, reached=reached), submitted_at=submitted_at)
    return dataclasses.replace(view, cpu_seconds=used), works


def order(*jobs: Known, settings: SrptOracleSettings | None = None) -> list[str]:
    policy, seen = SrptOraclePolicy(settings), snapshot(view for view, _ in jobs)
    true_work = {view.id: works for view, works in jobs}
    foreseen = OracleSnapshot(seen.now, seen.trigger, seen.jobs, seen.nodes, true_work=true_work)
    plan, _ = policy.plan(foreseen, policy.initial_state())
    return [entry.job_id for entry in plan.assignments]


def test_the_least_remaining_work_to_the_next_tier_goes_first() -> None:
    # 10, 3 and 5 CPU seconds are left
    assert order(knowing("a", 10, 11), knowing("b", 20, 90, used=17), knowing("c", 5, 6)) == ["b", "c", "a"]


def test_tier_one_goes_before_tier_two() -> None:
    assert order(knowing("near", 5, 6, used=5.5, reached=1), knowing("far", 50, 60)) == ["far", "near"]
    settings = SrptOracleSettings(tier_first=False)
    assert order(knowing("near", 5, 6, used=5.5, reached=1), knowing("far", 50, 60), settings=settings)[0] == "near"


def test_work_that_turned_out_longer_counts_as_nearly_done() -> None:
    assert order(knowing("a", 1, 9), knowing("over", 5, 9, used=7)) == ["over", "a"]


def test_jobs_of_which_nothing_is_known_come_last_by_submission() -> None:
    unknown = [knowing("x", submitted_at=2), knowing("w", submitted_at=3)]
    assert order(*unknown, knowing("a", 50, 60, submitted_at=9)) == ["a", "x", "w"]


def test_recorded_works_are_found_by_name() -> None:
    jobs = [
        dataclasses.replace(job(job_id, submitted_at=index), name=name)
        for index, (job_id, name) in enumerate([("a", "large:2"), ("b", "small"), ("c", "other")])
    ]
    settings = SrptOracleSettings(works="small:3.5/9; large:2:20/61.5;")
    assert order(*((view, ()) for view in jobs), settings=settings) == ["b", "a", "c"]
    plan, _ = SrptOraclePolicy(settings).plan(snapshot(jobs), SrptOraclePolicy().initial_state())
    assert [entry.job_id for entry in plan.assignments] == ["b", "a", "c"], "nor need a live snapshot know anything"


@pytest.mark.parametrize("works", ["small", "small:1;:2", "small:nan", "small:-1", "small:1//2"])
def test_works_that_make_no_sense_are_refused(works: str) -> None:
    with pytest.raises(ValueError, match=r"must read like|convert"):
        SrptOracleSettings(works=works)
