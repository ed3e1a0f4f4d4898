"""What runs that have reported tell of the pace of their node is held of those that have not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.broker.what_if.test_answer import CURVE, NODE, NOW, ask, job, only, present
from tiercel.broker.scheduling.interface import JobView, Snapshot, Trigger
from tiercel.broker.what_if.paces import MOST_RUNS, Paces
from tiercel.broker.what_if.progress import AS_BEFORE

TWICE = math.log(2.0)


def slow(job_id: str, *, node: str = "n1", times: float = 2.0) -> JobView:
    """A run with ten reports, each of which took so many times the CPU seconds of earlier runs."""
    one = job(job_id, spent=20.0, node=node)
    seen = tuple(replace(each, cpu_seconds=times * each.cpu_seconds) for each in one.observations)
    return replace(one, observations=seen, cpu_seconds=20.0 * times)


def looked(jobs: Sequence[JobView], before: Paces = Paces()) -> Paces:  # noqa: B008
    return before.after(Snapshot(NOW, Trigger.INTERVAL, tuple(jobs), (NODE,), (), {"digits": (CURVE,)}))


def test_the_more_runs_need_twice_as_much_the_more_it_is_held_of_others() -> None:
    paces = [looked([slow(name) for name in names]).beside("n1") for names in ("a", "abcdefghi")]
    assert [each.start for each in paces] == pytest.approx([TWICE / 2, 0.9 * TWICE])
    assert TWICE / 3 < paces[0].step < paces[1].step < TWICE


def test_a_run_that_is_over_still_tells_and_one_of_another_node_does_not() -> None:
    paces = looked([job("new")], looked([slow("a")]))
    assert paces.beside("n1").start == paces.beside("").start == pytest.approx(TWICE / 2)
    assert paces.beside("n2") == AS_BEFORE


def test_a_run_that_moved_tells_of_where_it_was_until_it_reports() -> None:
    paces = looked([replace(slow("a"), node_id="n2")], looked([slow("a")]))
    assert paces.beside("n1").start > 0
    assert paces.beside("n2") == AS_BEFORE


def test_the_latest_runs_are_remembered_and_no_more() -> None:
    paces = looked([slow(f"job-{number}") for number in range(MOST_RUNS + 9)])
    assert len(paces.seen) == MOST_RUNS
    assert "job-8" not in paces.seen
    assert list(looked([slow("job-9"), slow("new")], paces).seen)[-1] == "new"
    assert "job-9" not in looked([slow("new")], paces).seen


@pytest.mark.parametrize("count", [4, 10], ids=["a few reports", "as many as tell anything"])
def test_a_run_that_has_not_reported_since_is_not_worked_out_again(count: int) -> None:
    one = replace(slow("a"), observations=slow("a").observations[:count])
    before = looked([one])
    slower = replace(CURVE, curve=tuple(replace(each, cpu_seconds=2 * each.cpu_seconds) for each in CURVE.curve))
    now = Snapshot(NOW, Trigger.INTERVAL, (one,), (NODE,), (), {"digits": (slower,)})
    assert before.after(now) == before != Paces().after(now)


def test_runs_without_reports_programs_without_earlier_runs_and_forgotten_beginnings_tell_nothing() -> None:
    late = slow("c")
    late = replace(late, observations=late.observations[2:])
    assert looked([job("a"), replace(slow("b"), workload="new"), late]) == Paces()


def test_a_job_that_waits_beside_runs_that_need_twice_as_much_comes_later() -> None:
    beside = [job(name, spent=20.0) for name in "abc"]
    one, other = (only(ask(present([*jobs, job("new")])), "new") for jobs in (beside, map(slow, "abc")))
    came = [each.tiers[0].drawn for each in (one, other)]
    assert came[0] is not None
    assert came[1] is not None
    assert came[1].seconds > 1.3 * came[0].seconds


def test_what_was_remembered_counts_in_an_answer() -> None:
    of = present([job("a")])
    remembered = replace(of, paces=looked([slow(name) for name in "xyz"]))
    came = [only(ask(each), "a").tiers[0].drawn for each in (of, remembered)]
    assert came[0] is not None
    assert came[1] is not None
    assert came[1].seconds > 1.3 * came[0].seconds
