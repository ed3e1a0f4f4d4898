from __future__ import annotations

from testing.scheduling import job, snapshot, tiers
from tiercel.broker.scheduling.random_order import RandomOrderPolicy, RandomOrderSettings

NAMES = [f"job{index}" for index in range(12)]


def order(seed: int, names: list[str]) -> list[str]:
    policy = RandomOrderPolicy(RandomOrderSettings(seed=seed))
    jobs = [job(name, submitted_at=index) for index, name in enumerate(names)]
    plan, _ = policy.plan(snapshot(jobs), policy.initial_state())
    return [entry.job_id for entry in plan.assignments]


def test_the_seed_draws_the_order() -> None:
    assert order(1, NAMES) != order(2, NAMES)
    assert order(1, NAMES) != NAMES
    assert sorted(order(1, NAMES)) == sorted(NAMES)


def test_the_order_of_those_who_stay_does_not_change_when_others_leave() -> None:
    left = NAMES[::2]
    assert order(1, left) == [name for name in order(1, NAMES) if name in left]


def test_fewer_tiers_go_first_all_the_same() -> None:
    policy = RandomOrderPolicy()
    jobs = [job(name, ladder=tiers(0.5, 0.9, reached=int(name == "job0"))) for name in NAMES]
    plan, _ = policy.plan(snapshot(jobs), policy.initial_state())
    assert plan.assignments[-1].job_id == "job0"
