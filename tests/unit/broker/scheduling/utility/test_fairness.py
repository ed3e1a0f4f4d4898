"""Who must go first not to be late; all figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, past, snapshot
from tiercel.broker.scheduling.utility.fairness import late
from tiercel.broker.scheduling.utility.policy import UtilityPolicy


def claim(name: str, due: float, remaining: float) -> tuple[float, str, float, float]:
    return due, name, remaining, 1.0


def test_nobody_is_late_while_there_is_time() -> None:
    assert late([claim("a", 100, 10), claim("b", 100, 10)], 0.0, 1.0) == ({}, 80)


def test_who_is_due_next_goes_first_once_the_time_is_needed() -> None:
    claimants = [claim("later", 100, 10), claim("next", 11, 10)]
    assert late(claimants, 0.0, 1.0) == ({}, 1)
    assert late(claimants, 1.1, 1.0)[0] == {"next": 11}


def test_jobs_due_together_count_together() -> None:
    # Each alone has time; but both together need 20 s of one core before 19.9.
    claimants = [claim("a", 19.5, 10), claim("b", 19.9, 10)]
    assert late(claimants, 0.0, 1.0)[0] == {"a": 19.9, "b": 19.9}
    assert late(claimants, 0.0, 2.0)[0] == {}


def test_who_of_them_goes_first_is_open_while_those_due_earlier_have_time() -> None:
    claimants = [claim("a", 10.0, 10.2), claim("b", 30.0, 5), claim("c", 25.0, 10.1), claim("d", 100.0, 5)]
    assert late(claimants, 0.0, 1.0)[0] == {"a": 10.0}
    assert late([claim("b", 30.0, 5), claim("c", 25.0, 5), claim("e", 31.0, 21.1)], 0.0, 1.0)[0] == {
        "c": 31.0,
        "b": 31.0,
        "e": 31.0,
    }


def test_who_is_late_even_alone_takes_nobody_with_it() -> None:
    # One thread has 10 s to do 10.1 s of work, beside a job that has plenty of time on the other core.
    assert late([claim("b", 9.0, 1), claim("a", 10.0, 10.1)], 0.0, 2.0)[0] == {"a": 10.0}


def test_one_thread_cannot_be_hurried_by_more_cores() -> None:
    assert late([claim("a", 9.9, 10)], 0.0, 8.0)[0] == {"a": 9.9}


def test_on_a_node_that_gives_half_nobody_must_be_over_sooner_than_equal_shares_of_that_half() -> None:
    policy = UtilityPolicy()
    jobs = [replace(job(name, submitted_at=1000.0), workload="program") for name in "ab"]
    seen = replace(snapshot(jobs), history={"program": past((1.0, 0.5), (40.0, 0.95))})

    def seconds(given: float) -> list[float]:
        plan, state = policy.plan(replace(seen, given={"node": given}), policy.initial_state())
        assert len(plan.assignments) == 2
        return [due - seen.now for due in state.review.due.values()]

    assert seconds(0.5) == pytest.approx([2 * each for each in seconds(1.0)])
