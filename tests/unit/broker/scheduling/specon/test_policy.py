from __future__ import annotations

import dataclasses

import pytest

from testing.scheduling import job, node, reports, snapshot, waiting_job
from tiercel.broker.scheduling.interface import JobView, Plan
from tiercel.broker.scheduling.options import Option
from tiercel.broker.scheduling.registry import create_policy
from tiercel.broker.scheduling.specon.placement import SpeconPlacement, parse_given, work_left
from tiercel.broker.scheduling.specon.policy import SpeconPolicy, SpeconSettings, SpeconState
from tiercel.broker.scheduling.specon.readings import Category, SpeconUnit
from tiercel.core.errors import InvalidSpecError
from tiercel.core.shares import Share

NODES = [node("n1"), node("n2")]
QUICK = SpeconSettings(interval=1, unit=SpeconUnit.REPORTS)


def runs(name: str, node_id: str, *values: float) -> JobView:
    return dataclasses.replace(job(name, node_id=node_id, observations=reports(*values)), migratable=True)


def crowd() -> list[JobView]:
    """Two jobs that learn and one that has converged, all on n1."""
    return [runs("a", "n1", 0.0, 0.2), runs("b", "n1", 0.0, 0.2), runs("slow", "n1", 0.0, 0.4, 0.41, 0.42)]


def pass_at(now: float, jobs: list[JobView], state: SpeconState, policy: SpeconPolicy) -> tuple[Plan, SpeconState]:
    return policy.plan(dataclasses.replace(snapshot(jobs, NODES), now=now), state)


def test_shares_on_each_node_are_equal_before_and_after_a_move() -> None:
    policy = SpeconPolicy(QUICK)
    plan, state = pass_at(1000.0, crowd(), policy.initial_state(), policy)
    assert {a.job_id: (a.node_id, a.share.cpu_weight) for a in plan.assignments} == dict.fromkeys(
        ("a", "b", "slow"), ("n1", 1 / 3)
    )
    assert plan.assignments[0].share.reason == "equal share with 2 other jobs on this node"
    plan, _ = pass_at(1030.0, crowd(), state, policy)
    assert {a.job_id: (a.node_id, a.share) for a in plan.assignments} == {
        "a": ("n1", Share(0.5, reason="equal share with 1 other job on this node")),
        "b": ("n1", Share(0.5, reason="equal share with 1 other job on this node")),
        "slow": (
            "n2",
            Share(
                1.0,
                reason="moved from n1 to n2 because it hardly improves any more: there it held up 2 of 3 jobs that do, "
                "here 0 of 0; the only job on this node: it may use all of it",
            ),
        ),
    }


def test_moves_are_decided_on_a_round_after_the_first_pass_and_one_at_a_time() -> None:
    policy = SpeconPolicy(QUICK)
    jobs = [*crowd(), runs("slow2", "n1", 0.0, 0.4, 0.41, 0.42)]
    places = []
    state = policy.initial_state()
    for now in (1000.0, 1029.0, 1030.0, 1059.0, 1060.0):
        plan, state = pass_at(now, jobs, state, policy)
        node_of = {a.job_id: a.node_id for a in plan.assignments}
        jobs = [dataclasses.replace(one, node_id=node_of[one.id]) for one in jobs]
        places.append([node_of["slow"], node_of["slow2"]])
    assert places == [["n1", "n1"], ["n1", "n1"], ["n2", "n1"], ["n2", "n1"], ["n2", "n2"]]


def test_a_job_says_why_it_was_moved_for_as_long_as_it_is_there() -> None:
    policy = SpeconPolicy(QUICK)
    _, state = pass_at(1000.0, crowd(), policy.initial_state(), policy)
    _, state = pass_at(1030.0, crowd(), state, policy)
    there = [dataclasses.replace(one, node_id="n2", migrations=1, migrated_at=1030.0) for one in crowd()[2:]]
    plan, state = pass_at(1032.0, there, state, policy)
    assert "moved from n1 to n2" in plan.assignments[0].share.reason
    elsewhere = [dataclasses.replace(there[0], node_id="n1")]
    plan, _ = pass_at(1034.0, elsewhere, state, policy)
    assert plan.assignments[0].share.reason == "the only job on this node: it may use all of it"


def test_the_other_arm_of_a_comparison_moves_nothing() -> None:
    policy = SpeconPolicy(dataclasses.replace(QUICK, migrate=False))
    state = policy.initial_state()
    for now in (1000.0, 1030.0, 1060.0):
        plan, state = pass_at(now, crowd(), state, policy)
        assert {a.node_id for a in plan.assignments} == {"n1"}


def test_what_is_known_of_a_job_that_is_gone_is_dropped() -> None:
    policy = SpeconPolicy(QUICK)
    _, state = pass_at(1000.0, crowd(), policy.initial_state(), policy)
    _, state = pass_at(1030.0, crowd(), state, policy)
    assert state.readings["slow"].category is Category.CONVERGED
    assert set(state.migrated) == {"slow"}
    _, state = pass_at(1031.0, crowd()[:1], state, policy)
    assert (set(state.readings), set(state.migrated)) == ({"a"}, set())


def named(name: str) -> JobView:
    return dataclasses.replace(waiting_job(f"id-{name}"), name=name)


def test_given_places_go_by_name_and_the_others_are_spread() -> None:
    policy = SpeconPolicy(SpeconSettings(placement=SpeconPlacement.GIVEN, given="x=n1, y=n1"))
    plan, _ = policy.plan(snapshot([named("x"), named("y"), named("z")], NODES), policy.initial_state())
    assert {a.job_id: a.node_id for a in plan.assignments} == {"id-x": "n1", "id-y": "n1", "id-z": "n2"}


def test_lots_depend_on_the_job_and_the_seed_alone() -> None:
    names = [f"job{number}" for number in range(40)]

    def places(seed: int, chosen: list[str]) -> dict[str, str]:
        policy = SpeconPolicy(SpeconSettings(placement=SpeconPlacement.RANDOM, seed=seed))
        plan, _ = policy.plan(snapshot([named(name) for name in chosen], NODES), policy.initial_state())
        return {a.job_id: a.node_id for a in plan.assignments}

    assert set(places(0, names).values()) == {"n1", "n2"}
    assert places(0, names[7:8]).items() <= places(0, names).items()
    assert places(0, names) != places(1, names)


def test_procon_takes_the_node_with_the_least_work_left_times_jobs() -> None:
    """Epochs of 2 s at a share of 0.5: 4 each. n1: (1 + 4 * 97) * 1 = 389. n2: (1 + 2 * 4 * 17) * 2 = 274."""
    seen = tuple(dataclasses.replace(one, at=2.0 * one.at) for one in reports(0.1, 0.2, 0.3))

    def trains(name: str, node_id: str, epochs: int) -> JobView:
        share = Share(0.5, reason="so")
        view = job(name, node_id=node_id, observations=seen, cpu_cores=1.0, share=share)
        return dataclasses.replace(view, max_epochs=epochs)

    jobs = [trains("long", "n1", 100), trains("short1", "n2", 20), trains("short2", "n2", 20)]
    assert [work_left(one, 1000.0) for one in jobs] == [388.0, 68.0, 68.0]
    policy = SpeconPolicy(SpeconSettings(placement=SpeconPlacement.PROCON))
    plan, _ = policy.plan(snapshot([*jobs, waiting_job("new")], NODES), policy.initial_state())
    assert {a.job_id: a.node_id for a in plan.assignments}["new"] == "n2"
    # A node on which as many cores are asked for as it has is still within its limit; with one more it is not.
    more = [
        *jobs,
        dataclasses.replace(jobs[2], id="wide", resources=dataclasses.replace(jobs[2].resources, cpu_cores=3)),
    ]
    plan, _ = policy.plan(snapshot([*more, waiting_job("new")], NODES), policy.initial_state())
    assert {a.job_id: a.node_id for a in plan.assignments}["new"] == "n1"


def test_a_job_without_an_epoch_counts_its_waiting_as_one() -> None:
    fresh = dataclasses.replace(job("a", submitted_at=990.0), max_epochs=5)
    assert work_left(fresh, 1000.0) == 50.0


@pytest.mark.parametrize("text", ["x", "x=", "=n1", "x=n1,x=n2", "x=n1=n2"])
def test_given_places_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JOB=NODE"):
        parse_given(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -1}, "at least 0"),
        ({"interval": "nan"}, "at least 0"),
        ({"least_difference": 0}, "at least 1"),
        ({"given": "x"}, "JOB=NODE"),
        ({"migrate": "perhaps"}, "true or false"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Option], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        create_policy("specon", options)


def test_options_may_be_text() -> None:
    policy = create_policy("specon", {"migrate": "false", "unit": "reports", "interval": "2", "given": "x=n1"})
    assert isinstance(policy, SpeconPolicy)
    assert policy.settings == SpeconSettings(migrate=False, unit=SpeconUnit.REPORTS, interval=2.0, given="x=n1")
