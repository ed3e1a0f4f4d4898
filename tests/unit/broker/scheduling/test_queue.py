"""What jobs of a node get by turns, and policies that are but an order."""

from dataclasses import replace

import pytest

from testing.scheduling import job, node, snapshot, tiers, waiting_job
from tiercel.broker.scheduling.allocate import Turns, by_turns
from tiercel.broker.scheduling.interface import JobView, Plan
from tiercel.broker.scheduling.queue import QueueSettings, QueueState, plan_in_order
from tiercel.broker.scheduling.rank import Position
from tiercel.core.jobs import TierState, TierStatus


def test_as_many_as_there_are_cores_share_all_but_the_floor() -> None:
    assert by_turns([1, 1, 1, 1, 1], 2).weights == pytest.approx((0.495, 0.495, 0.01 / 3, 0.01 / 3, 0.01 / 3))
    assert by_turns([1, 1, 1, 1, 1], 2).front == 2


def test_the_last_one_in_front_gets_the_cores_that_are_left() -> None:
    # 1, then 3 of the 4 that it asks for: 0.99 as 1 : 3
    shares = by_turns([1, 4, 1], 4)
    assert shares.weights == pytest.approx((0.2475, 0.7425, 0.01))
    assert shares.front == 2


def test_a_job_that_can_use_more_than_the_node_counts_as_the_node() -> None:
    assert by_turns([8, 1], 4) == Turns((0.99, 0.01), front=1)


def test_without_others_there_is_no_floor() -> None:
    assert by_turns([1, 3], 8) == Turns((0.25, 0.75), front=2)
    assert by_turns([], 8) == Turns((), front=0)


def test_so_many_at_a_time_share_by_the_cores_that_they_can_use() -> None:
    shares = by_turns([1, 3, 1], 2, at_a_time=2, floor=0.1)
    assert shares.weights == pytest.approx((0.3, 0.6, 0.1))
    assert shares.front == 2


def by_name(view: JobView) -> Position:
    return Position(view.id, f"called {view.id}")


def shares_of(plan: Plan) -> list[tuple[str, str]]:
    return [(entry.job_id, entry.share.reason) for entry in plan.assignments]


def test_fewer_tiers_go_first_and_jobs_that_reached_all_last() -> None:
    jobs = [
        job("a-done", ladder=tiers(0.5, reached=1), cpu_cores=1),
        job("b-second", ladder=tiers(0.5, 0.9, reached=1), cpu_cores=1),
        job("d-first", ladder=tiers(0.5, 0.9), cpu_cores=1),
        job("c-first", cpu_cores=1),
    ]
    plan, _ = plan_in_order(snapshot(jobs, [node(cpu_cores=2)]), QueueState(), by_name, QueueSettings())
    assert shares_of(plan) == [
        ("c-first", "works for its tier 1, called c-first: one of 2 that run now, with 50 % of the node"),
        ("d-first", "works for its tier 1, called d-first: one of 2 that run now, with 50 % of the node"),
        (
            "b-second",
            "works for its tier 2, called b-second: 2 go before it; keeps 1 % of the node until its turn",
        ),
        (
            "a-done",
            "all its tiers are reached, called a-done: 3 go before it; keeps 1 % of the node until its turn",
        ),
    ]


def test_without_tiers_first_only_the_rank_counts() -> None:
    jobs = [job("a", ladder=tiers(0.5, reached=1)), job("b")]
    plan, _ = plan_in_order(snapshot(jobs), QueueState(), by_name, QueueSettings(tier_first=False))
    assert [name for name, _ in shares_of(plan)] == ["a", "b"]


def test_submission_settles_ties() -> None:
    jobs = [job("b", submitted_at=2), job("c", submitted_at=1), job("a", submitted_at=2)]
    plan, _ = plan_in_order(snapshot(jobs), QueueState(), lambda view: Position(0, "like all"), QueueSettings())
    assert [name for name, _ in shares_of(plan)] == ["c", "a", "b"]


def test_every_node_has_a_line_of_its_own_and_who_fits_nowhere_waits() -> None:
    jobs = [job("x", node_id="a"), job("y", node_id="b"), waiting_job("w", cpu_cores=99)]
    plan, _ = plan_in_order(snapshot(jobs, [node("a"), node("b")]), QueueState(), by_name, QueueSettings())
    assert [(entry.node_id, entry.share.cpu_weight) for entry in plan.assignments] == [("a", 1.0), ("b", 1.0)]
    assert list(plan.waiting) == ["w"]


def test_a_node_without_news_keeps_what_it_has() -> None:
    nodes = [node("a", cpu_cores=1), node("b", cpu_cores=1)]
    jobs = [job(name, node_id=name[0], cpu_cores=1) for name in ("a1", "a2", "b1", "b2")]
    _, state = plan_in_order(snapshot(jobs, nodes), QueueState(), by_name, QueueSettings())
    jobs[0] = job("a1", node_id="a", ladder=tiers(0.5, reached=1), cpu_cores=1)
    plan, later = plan_in_order(snapshot(jobs, nodes), state, by_name, QueueSettings())
    assert later.nodes["b"] is state.nodes["b"]
    fresh, _ = plan_in_order(snapshot(jobs, nodes), QueueState(), by_name, QueueSettings())
    assert plan == fresh


@pytest.mark.parametrize("fields", [{"at_a_time": 0}, {"floor": 0.0}, {"floor": 1.0}])
def test_settings_that_make_no_sense_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        QueueSettings(**fields)  # type: ignore[arg-type] # by name


def handing_over(tier: TierStatus, since: float) -> TierStatus:
    """The tier, reached so many seconds ago; jobs of these tests were submitted at second 0, and it is 1000 now."""
    return replace(tier, state=TierState.REACHED, reached_seconds=1000.0 - since)


def test_a_job_keeps_its_place_until_its_model_is_handed_over() -> None:
    """At its floor it would export for seconds, while somebody waits for what takes little CPU."""
    reached, waits = tiers(0.5, 0.9, reached=1)
    jobs = [
        job("a", cpu_cores=1),
        job("b", ladder=(handing_over(reached, 0.5), waits), cpu_cores=1),
        job("c", ladder=tiers(0.5, 0.9, reached=1), cpu_cores=1),
    ]
    plan, _ = plan_in_order(snapshot(jobs, [node(cpu_cores=1)]), QueueState(), by_name, QueueSettings())
    assert shares_of(plan) == [
        ("b", "hands over the model of its tier 1: the one that runs now, with 99 % of the node"),
        ("a", "works for its tier 1, called a: 1 goes before it; keeps 1 % of the node until its turn"),
        ("c", "works for its tier 2, called c: 2 go before it; keeps 1 % of the node until its turn"),
    ]


def test_a_later_tier_is_handed_over_after_first_tiers_and_before_others() -> None:
    first, second = tiers(0.5, 0.9, reached=2)
    jobs = [
        job("a", ladder=tiers(0.5, 0.9, 0.95, reached=2)),
        job("b", ladder=(first, handing_over(second, 0.5))),
        job("c", ladder=tiers(0.5, 0.9, reached=1)),
        job("d"),
    ]
    plan, _ = plan_in_order(snapshot(jobs), QueueState(), by_name, QueueSettings())
    assert [name for name, _ in shares_of(plan)] == ["d", "b", "c", "a"]


def test_without_tiers_first_a_model_is_handed_over_first_all_the_same() -> None:
    reached, waits = tiers(0.5, 0.9, reached=1)
    jobs = [job("a"), job("b", ladder=(handing_over(reached, 0.5), waits))]
    plan, _ = plan_in_order(snapshot(jobs), QueueState(), by_name, QueueSettings(tier_first=False))
    assert [name for name, _ in shares_of(plan)] == ["b", "a"]


def test_whoever_does_not_hand_over_for_long_waits_for_something_else_than_cpu() -> None:
    """A trial of the new version, say, which takes minutes: the others must not wait for that."""
    reached, waits = tiers(0.5, 0.9, reached=1)
    soon, late = (job("b", ladder=(handing_over(reached, since), waits)) for since in (10.0, 10.1))
    for mine, order in ((soon, ["b", "a"]), (late, ["a", "b"])):
        plan, _ = plan_in_order(snapshot([job("a"), mine]), QueueState(), by_name, QueueSettings())
        assert [name for name, _ in shares_of(plan)] == order
