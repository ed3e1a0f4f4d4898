from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, node
from tiercel.broker.scheduling.dqoes.policy import DqoesPolicy, DqoesSettings, DqoesState
from tiercel.broker.scheduling.dqoes.rule import DqoesDelay, DqoesMode
from tiercel.broker.scheduling.interface import EndpointView, JobView, Plan, Snapshot, Trigger
from tiercel.core.shares import Share


def endpoint(
    name: str,
    *,
    delay: float | None,
    objective: float | None = 0.1,
    cores: float = 1.0,
    node_id: str = "node",
    rate: float = 10.0,
    share: Share | None = None,
) -> EndpointView:
    return EndpointView(name, "t", node_id, 1.0, objective, rate, delay, cores, None, share)


def snapshot(endpoints: list[EndpointView], jobs: list[JobView] | None = None, now: float = 0.0) -> Snapshot:
    return Snapshot(now, Trigger.INTERVAL, tuple(jobs or ()), (node(cpu_cores=4.0),), tuple(endpoints))


def planned(endpoints: list[EndpointView], jobs: list[JobView] | None = None) -> Plan:
    return DqoesPolicy().plan(snapshot(endpoints, jobs), DqoesState())[0]


def test_limits_are_caps_in_cores_and_weights_and_say_why() -> None:
    plan = planned([endpoint("slow", delay=0.15, cores=1.0), endpoint("right", delay=0.1, cores=1.0)])
    slow, right = plan.endpoint_shares["slow"], plan.endpoint_shares["right"]
    # a quarter of the node makes 150 ms, so three eighths make 100 ms
    assert (slow.cpu_weight, slow.cpu_cap_cores) == pytest.approx((0.375, 1.5))
    assert (right.cpu_weight, right.cpu_cap_cores) == pytest.approx((0.25, 1.0))
    assert slow.reason == (
        "answers in 150 ms, slower than its objective of 100 ms: gets what others leave; limited to 1.5 cores"
    )


def test_the_95th_percentile_is_judged_where_that_is_wanted_and_was_measured() -> None:
    # In the mean both are right; one in twenty of a's answers takes twice its objective.
    views = [replace(endpoint(name, delay=0.1), p95_seconds=p95) for name, p95 in (("a", 0.2), ("b", None))]
    by_mean = DqoesPolicy().plan(snapshot(views), DqoesState())[0].endpoint_shares
    policy = DqoesPolicy(DqoesSettings(delay=DqoesDelay.P95))
    by_p95 = policy.plan(snapshot(views), DqoesState())[0].endpoint_shares
    assert by_mean["a"].cpu_weight == pytest.approx(0.25)
    assert by_p95["a"].cpu_weight == pytest.approx(0.5)
    assert by_p95["b"].cpu_weight == by_mean["b"].cpu_weight
    assert by_p95["a"].reason.startswith("answers in 200 ms (p95), slower than its objective of 100 ms")


def test_endpoints_without_objective_or_without_requests_are_not_limited() -> None:
    plan = planned(
        [endpoint("free", delay=0.1, objective=None), endpoint("idle", delay=None, rate=0.0), endpoint("on", delay=0.1)]
    )
    assert set(plan.endpoint_shares) == {"on"}


def test_what_endpoints_without_objective_use_is_not_given_out() -> None:
    slow = endpoint("slow", delay=10.0, cores=0.4)
    alone = planned([slow]).endpoint_shares["slow"].cpu_weight
    beside = planned([slow, endpoint("free", delay=0.1, objective=None, cores=1.0)]).endpoint_shares["slow"].cpu_weight
    assert (alone, beside) == pytest.approx((1.0, 0.75))


def test_jobs_share_the_rest_equally_and_keep_their_floor() -> None:
    plan = planned([endpoint("slow", delay=10.0, cores=0.4)], [job("a"), job("b")])
    weights = {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}
    assert weights == pytest.approx({"a": 0.05, "b": 0.05})
    assert plan.endpoint_shares["slow"].cpu_weight == pytest.approx(0.9)
    assert all(entry.share.cpu_cap_cores is None for entry in plan.assignments)


def test_jobs_of_a_node_without_objectives_share_all_of_it() -> None:
    plan = planned([endpoint("free", delay=0.1, objective=None)], [job("a"), job("b")])
    assert [entry.share.cpu_weight for entry in plan.assignments] == [0.5, 0.5]


def moves(looks: list[tuple[float, list[EndpointView]]], settings: DqoesSettings | None = None) -> list[bool]:
    """At which of these looks limits were moved; every look shows what was planned at the last one."""
    policy, state = DqoesPolicy(settings), DqoesState()
    shares: dict[str, Share] = {}
    moved = []
    for now, endpoints in looks:
        shown = [replace(each, share=shares.get(each.name)) for each in endpoints]
        before = [record.next_at for record in state.records]
        plan, state = policy.plan(snapshot(shown, now=now), state)
        moved.append([record.next_at for record in state.records] != before)
        shares = plan.endpoint_shares
    return moved


def test_the_listener_moves_limits_once_an_interval_while_some_can_give_and_some_want() -> None:
    pair = [endpoint("fast", delay=0.05), endpoint("slow", delay=0.2)]
    # cores differ at each look, so that a move is seen
    looks = [(float(s), [replace(each, cpu_cores_used=1 + s / 100) for each in pair]) for s in range(0, 12, 2)]
    assert moves(looks) == [True, False, True, False, True, False]


@pytest.mark.parametrize("mode", DqoesMode)
def test_the_listener_rests_longer_and_longer_where_nobody_can_give(mode: DqoesMode) -> None:
    looks = [(float(s), [endpoint("slow", delay=0.2, cores=4.0)]) for s in range(0, 68, 4)]
    moved = moves(looks, DqoesSettings(interval=4.0, max_interval=16.0, mode=mode))
    assert [4 * index for index, each in enumerate(moved) if each] == [0, 4, 12, 28, 44, 60]


def test_the_listener_does_not_rest_while_limits_move() -> None:
    looks = [(float(s), [endpoint("fast", delay=0.01, cores=3 * 0.9 ** (s / 4))]) for s in range(0, 40, 4)]
    settings = DqoesSettings(interval=4.0, max_interval=16.0)
    assert all(moves(looks, settings))
    assert not all(moves(looks, replace(settings, mode=DqoesMode.LITERAL)))


def test_a_satisfied_endpoint_that_falls_out_and_a_newcomer_are_answered_at_once() -> None:
    settled, late = endpoint("a", delay=0.1), endpoint("a", delay=0.2)
    assert moves([(0.0, [settled]), (1.0, [settled]), (2.0, [late])]) == [True, False, True]
    assert moves([(0.0, [settled]), (1.0, [settled, endpoint("b", delay=0.1)])]) == [True, True]


def test_a_newcomer_is_measured_for_a_while_before_it_is_limited() -> None:
    policy = DqoesPolicy(DqoesSettings(interval=4.0))
    known = endpoint("a", delay=0.1)
    plan, state = policy.plan(snapshot([known]), DqoesState())
    known = replace(known, share=plan.endpoint_shares["a"])
    newcomer = endpoint("b", delay=0.2, cores=0.01)
    plan, state = policy.plan(snapshot([known, newcomer], now=1.0), state)
    assert set(plan.endpoint_shares) == {"a"}
    plan, state = policy.plan(snapshot([known, replace(newcomer, cpu_cores_used=2.0)], now=5.0), state)
    assert set(plan.endpoint_shares) == {"a", "b"}
    assert plan.endpoint_shares["b"].cpu_weight >= 0.5


def test_limits_kept_between_two_moves_make_room_for_training_that_came() -> None:
    policy = DqoesPolicy()
    slow = endpoint("slow", delay=10.0, cores=0.4)
    plan, state = policy.plan(snapshot([slow]), DqoesState())
    kept = replace(slow, share=plan.endpoint_shares["slow"])
    plan, _ = policy.plan(snapshot([kept], [job("a")], now=1.0), state)
    assert plan.endpoint_shares["slow"].cpu_weight == pytest.approx(0.9)
    assert plan.endpoint_shares["slow"].cpu_cap_cores == pytest.approx(3.6)


@pytest.mark.parametrize(
    "changes", [{"training_floor": 0.0}, {"training_floor": 1.0}, {"interval": -1.0}, {"interval": 64.0}, {"alpha": 0}]
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        DqoesSettings(**changes)  # type: ignore[arg-type]
