"""The utility policy's decisions, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from testing.known_work import HISTORY, UNGUARDED, known, plan_of
from testing.scheduling import GIB, job, node, reasons, reports, snapshot, tiers, waiting_job, weights
from tiercel.broker.scheduling.interface import (
    EndpointView,
    JobView,
    Plan,
    Snapshot,
)
from tiercel.broker.scheduling.utility.policy import UtilityPolicy, UtilityState
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Observation, TierState, TierStatus

# --- Who runs ---------------------------------------------------------------------------------------------------------


def test_the_job_that_needs_least_runs_and_the_others_keep_a_floor() -> None:
    plan = plan_of(known("a", "long"), known("b", "short"), known("c", "long"))
    assert weights(plan) == pytest.approx({"b": 0.99, "a": 0.005, "c": 0.005})
    assert reasons(plan)["b"] == (
        "tier 1 in about 3.8 s to 4.2 s of CPU time, going by earlier runs of the same program: "
        "the one that runs now, with 99 % of the node"
    )
    assert reasons(plan)["c"].startswith("tier 1 in about 38 s to 42 s of CPU time")
    differing = tuple(replace(run, differs=0.2) for run in HISTORY["short"])
    edited = plan_of(known("d", "edited", similar=("name",)), similar={"name": differing})
    assert "of CPU time, going by earlier runs of a program like it: " in reasons(edited)["d"]
    assert reasons(plan)["c"].endswith("2 go before it; keeps 1 % of the node until its turn")


def test_as_many_run_as_there_are_cores() -> None:
    plan = plan_of(*(known(name, "short") for name in "abc"), known("d", "long"), nodes=[node(cpu_cores=3.0)])
    assert weights(plan) == pytest.approx({"a": 0.99 / 3, "b": 0.99 / 3, "c": 0.99 / 3, "d": 0.01})


def test_value_and_weight_count() -> None:
    # The long one needs ten times the work: worth more only with more than ten times the value.
    short = known("short", "short")
    status = short.tiers[0]
    for factor, first in ((5.0, "short"), (20.0, "long")):
        valued = (replace(status, tier=replace(status.tier, value=factor)),)
        assert plan_of(short, known("long", "long", tiers=valued)).assignments[0].job_id == first
        assert plan_of(short, known("long", "long", tenant_weight=factor)).assignments[0].job_id == first


def test_a_first_tier_comes_before_a_second() -> None:
    seen = tuple(Observation(at, int(at), value, at) for at, value in ((1.0, 0.1), (4.0, 0.9)))
    second = known("second", "short", tiers=tiers(0.9, 0.95, reached=1), observations=seen, cpu_seconds=4.0)
    assert plan_of(second, known("first", "long")).assignments[0].job_id == "first"


def reached_at(status: TierStatus, moment: float) -> TierStatus:
    """The status of a tier that a job submitted at 0 reached at a moment, and whose model it hands over since."""
    return replace(status, state=TierState.REACHED, reached_seconds=moment)


def test_a_job_keeps_its_place_until_its_model_is_handed_over() -> None:
    """Moved aside when it has just reached its tier, a job would export at its floor: seconds later than need be."""
    delivered, waits = tiers(0.5, 0.9, reached=1)
    mine = known("a", "short", tiers=(delivered, waits))

    assert weights(plan_of(mine, known("b", "short"))) == pytest.approx({"b": 0.99, "a": 0.01})
    plan = plan_of(replace(mine, tiers=(reached_at(delivered, 995.0), waits)), known("b", "short"))
    assert weights(plan) == pytest.approx({"a": 0.99, "b": 0.01})
    assert reasons(plan)["a"] == "hands over the model of its tier 1: the one that runs now, with 99 % of the node"


def test_who_does_not_hand_over_for_long_waits_for_something_else_than_cpu() -> None:
    """A trial of the new version, say, which takes minutes: the others must not wait for that."""
    reached, waits = tiers(0.5, 0.9, reached=1)
    mine, other = known("a", "long", tiers=(reached_at(reached, 995.0), waits)), known("b", "short")
    policy = UtilityPolicy(UNGUARDED)
    state = policy.initial_state()
    first = {}
    for now in (1000.0, 1005.0, 1005.1):
        seen = replace(snapshot([mine, other], [node(cpu_cores=1.0)]), history=HISTORY, now=now)
        plan, state = policy.plan(seen, state)
        first[now] = plan.assignments[0].job_id
    assert first == {1000.0: "a", 1005.0: "a", 1005.1: "b"}


def test_a_model_is_handed_over_even_where_the_next_tier_is_out_of_reach() -> None:
    """At the floor of the hopeless the export could take longer than the agent waits for it."""
    reached, hopeless = tiers(0.5, 0.9, reached=1, unreachable=[2])
    handing_over = known("a", "short", tiers=(reached_at(reached, 995.0), hopeless))

    plan = plan_of(handing_over, known("b", "short"))
    assert weights(plan)["a"] > 0.9
    assert reasons(plan)["a"].startswith("hands over the model of its tier 1: ")
    assert weights(plan_of(replace(handing_over, tiers=(reached, hopeless)), known("b", "short")))["b"] > 0.9


def test_news_of_a_delivery_alone_moves_the_line() -> None:
    delivered, waits = tiers(0.5, 0.9, reached=1)
    mine, other = known("a", "short", tiers=(delivered, waits)), known("b", "short")
    policy = UtilityPolicy(UNGUARDED)

    def plan(now: float, *jobs: JobView, state: UtilityState) -> tuple[Plan, UtilityState]:
        seen = replace(snapshot(jobs, [node(cpu_cores=1.0)]), history=HISTORY, now=now)
        return policy.plan(seen, state)

    handing_over = replace(mine, tiers=(reached_at(delivered, 95.0), waits))
    before, state = plan(100.0, handing_over, other, state=policy.initial_state())
    after, _ = plan(101.0, mine, other, state=state)
    assert weights(before)["a"] > 0.9
    assert weights(after)["b"] > 0.9


def test_a_deadline_that_can_just_be_met_hurries() -> None:
    # Both need the same; one has 50 s left for its 40.
    status = known("x", "long").tiers[0]
    urgent = replace(status, tier=replace(status.tier, deadline_seconds=1050.0))
    missed = replace(status, tier=replace(status.tier, deadline_seconds=1001.0))
    assert plan_of(known("a", "long"), known("b", "long", tiers=(urgent,))).assignments[0].job_id == "b"
    assert plan_of(known("a", "long"), known("b", "long", tiers=(missed,))).assignments[0].job_id == "a"


# --- Out of reach -----------------------------------------------------------------------------------------------------


def flat(count: int, level: float = 0.5, *, then: tuple[float, ...] = ()) -> tuple[Observation, ...]:
    return reports(*(level * (1 - math.exp(-index)) for index in range(count)), *then)


def follow(policy: UtilityPolicy, state: UtilityState, counts: range) -> tuple[Plan, UtilityState]:
    plan = Plan()
    for count in counts:
        hopeless = replace(job("hopeless", cpu_cores=1.0), observations=flat(count), cpu_seconds=float(count))
        plan, state = policy.plan(snapshot([hopeless, known("other", "")], [node(cpu_cores=1.0)]), state)
    return plan, state


def test_a_tier_out_of_reach_is_told_loses_its_place_and_comes_back_on_progress() -> None:
    policy = UtilityPolicy(UNGUARDED)
    plan, state = follow(policy, policy.initial_state(), range(1, 40))
    assert "tier 1 (target 0.9) looks out of reach" in plan.unreachable["hopeless"]
    assert weights(plan) == pytest.approx({"other": 0.99, "hopeless": 0.01})
    assert "goes on with 1 % of the node until it makes progress" in reasons(plan)["hopeless"]
    rising = replace(job("hopeless", cpu_cores=1.0), observations=flat(39, then=(0.6, 0.7)), cpu_seconds=50.0)
    rising = replace(rising, observations=(*rising.observations[:-1], Observation(50.0, 50, 0.7, 50.0)))
    plan, _ = policy.plan(snapshot([rising, known("other", "")], [node(cpu_cores=1.0)]), state)
    assert plan.unreachable == {}


def test_a_job_alone_keeps_the_node_though_its_tier_is_out_of_reach() -> None:
    ladder = tiers(0.9, unreachable=[1])
    plan = plan_of(job("hopeless", ladder=ladder, cpu_cores=1.0))
    assert weights(plan) == {"hopeless": 1.0}
    assert list(plan.unreachable) == ["hopeless"]


# --- Being over -------------------------------------------------------------------------------------------------------


def all_tiers_reached(epochs_left: int) -> JobView:
    """A job of the long program that goes on for so many epochs of one CPU second."""
    done = known("done", "long", tiers=tiers(0.5, reached=1), continues=True, max_epochs=10 + epochs_left)
    return replace(done, observations=reports(*(0.6,) * 10), cpu_seconds=10.0)


def test_who_is_over_soon_does_not_wait_for_tiers_that_are_far() -> None:
    # Being over counts a hundredth of a first tier: 2 s of that are worth as much as a first tier in 200 s.
    done = all_tiers_reached(epochs_left=2)
    plan = plan_of(done, known("b", "longest"))
    assert weights(plan)["done"] > 0.9
    assert reasons(plan)["done"] == (
        "all its tiers are reached; it ends after about 2 s more of CPU time: "
        "the one that runs now, with 99 % of the node"
    )
    assert weights(plan_of(done, known("b", "long")))["b"] > 0.9
    assert weights(plan_of(all_tiers_reached(epochs_left=8), known("b", "longest")))["b"] > 0.9


def test_how_much_being_over_counts_is_a_setting() -> None:
    settings = UtilitySettings(guard_ratio=0.0, finishing=1.0)
    assert weights(plan_of(all_tiers_reached(epochs_left=2), known("b", "short"), settings=settings))["done"] > 0.9


# --- Nobody is sacrificed ---------------------------------------------------------------------------------------------


def test_a_job_that_would_be_over_too_late_goes_first() -> None:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=1.5))
    state = policy.initial_state()
    done = known("done", "short", tiers=tiers(0.9, reached=1), submitted_at=0.0, continues=True, max_epochs=20)
    done = replace(done, observations=reports(*(0.9,) * 10), cpu_seconds=10.0)
    climbing = [known(f"climbing{number}", "long", submitted_at=0.0) for number in range(2)]
    first = []
    # It still needs 10 s; a third of a core each, which costs a fifth, would let it be over after 74 s: due at 111.
    for now in range(0, 120, 5):
        seen = replace(snapshot([done, *climbing], [node(cpu_cores=1.0)]), now=float(now), history=HISTORY)
        plan, state = policy.plan(seen, state)
        first.append((now, plan.assignments[0].job_id, plan.assignments[0].share.reason))
    lifted = [now for now, name, _ in first if name == "done"]
    assert lifted
    assert 50 <= lifted[0] <= 105
    assert all("goes first, as it would end too late otherwise" in why for _, name, why in first if name == "done")


# --- Where ------------------------------------------------------------------------------------------------------------


def test_a_waiting_job_goes_where_least_is_before_it() -> None:
    busy = [known(f"short{number}", "short", node_id="a") for number in range(2)]
    long = known("long", "long", node_id="b")
    new = replace(waiting_job("new"), workload="short")
    nodes = [node("a", cpu_cores=1.0), node("b", cpu_cores=1.0)]
    # On a it waits for 8 s, on b it goes before the long one.
    plan = plan_of(*busy, long, new, nodes=nodes)
    assert {entry.job_id: entry.node_id for entry in plan.assignments}["new"] == "b"


@pytest.mark.parametrize("reached", [0, 1], ids=["who goes first there", "who would wait there"])
def test_a_waiting_job_goes_where_a_core_is_free_however_long_its_neighbour_will_be_there(reached: int) -> None:
    ladder = tiers(0.9, 0.99, reached=reached)
    busy = [known(f"short{number}", "short", node_id="a", tiers=ladder) for number in range(2)]
    longest = known("longest", "longest", node_id="b")
    new = replace(waiting_job("new"), workload="long")
    plan = plan_of(*busy, longest, new, nodes=[node("a", cpu_cores=2.0), node("b", cpu_cores=2.0)])
    assert {entry.job_id: entry.node_id for entry in plan.assignments}["new"] == "b"


def test_a_job_moves_to_a_node_that_idles_and_stays_there() -> None:
    nodes = [node("a", cpu_cores=1.0), node("b", cpu_cores=1.0)]
    jobs = [known(f"job{number}", "long", node_id="a", migratable=True) for number in range(3)]
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    state = policy.initial_state()
    seen = replace(snapshot(jobs, nodes), history=HISTORY)
    plan, state = policy.plan(seen, state)
    moved = [entry for entry in plan.assignments if entry.node_id == "b"]
    assert len(moved) == 1, "one migration a round"
    assert moved[0].share.reason.startswith("moved from a to b, where 0 s of work are left against")
    for now in range(1001, 1100, 3):
        sent = moved[0].job_id
        jobs = [
            replace(each, node_id="b", migrations=1, migrated_at=1000.0) if each.id == sent else each for each in jobs
        ]
        plan, state = policy.plan(replace(seen, now=float(now), jobs=tuple(jobs)), state)
        assert {entry.job_id: entry.node_id for entry in plan.assignments} == {each.id: each.node_id for each in jobs}


def test_one_moves_at_a_time_and_only_where_a_node_would_idle() -> None:
    nodes = [node(name, cpu_cores=1.0) for name in "abc"]
    jobs = [known(f"job{number}", "long", node_id="a", migratable=True) for number in range(6)]
    policy = UtilityPolicy(UNGUARDED)
    state = policy.initial_state()
    sent: list[tuple[str, str]] = []
    for now in (1000.0, 1005.0, 1010.0, 1015.0):
        seen = replace(snapshot(jobs, nodes), history=HISTORY, now=now)
        plan, state = policy.plan(seen, state)
        places = {entry.job_id: entry.node_id for entry in plan.assignments}
        moved = [each.id for each in jobs if places[each.id] != each.node_id]
        assert len(moved) <= 1
        sent += [(places[name], name) for name in moved]
        jobs = [replace(each, node_id=places[each.id]) for each in jobs]
    # Four of six stay beside each other though the others have a node each: nobody there idles any more.
    assert sorted(target for target, _ in sent) == ["b", "c"]


def test_jobs_that_wait_for_memory_find_a_node_by_what_they_are_worth() -> None:
    jobs = [replace(waiting_job(name), workload=name, submitted_at=float(at)) for at, name in enumerate(HISTORY)]
    jobs = [jobs[1], jobs[2], jobs[0]]
    plan = plan_of(
        *(replace(each, submitted_at=float(at)) for at, each in enumerate(jobs)),
        nodes=[node(cpu_cores=1.0, memory_bytes=GIB)],
    )
    assert weights(plan) == {"short": 1.0}
    assert set(plan.waiting) == {"long", "longest"}


def test_a_job_that_waits_for_memory_and_would_be_over_too_late_finds_a_node_first() -> None:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=1.35))
    state = policy.initial_state()
    nodes = [node(cpu_cores=1.0, memory_bytes=GIB)]
    runs = known("runs", "long", submitted_at=0.0)
    waits = replace(waiting_job("waits"), workload="long", submitted_at=0.0)
    worthy = replace(waiting_job("worthy"), workload="long", submitted_at=45.0, tenant_weight=5.0)
    both = [waits, worthy]
    # Under equal shares the second one would begin once the first is over, and be over at about 90: it is due at 121.
    found = {}
    for now, jobs in ((0.0, [runs, waits]), (31.0, [runs, waits]), (50.0, both), (85.0, both)):
        seen = replace(snapshot(jobs, nodes), history=HISTORY, now=now)
        plan, state = policy.plan(seen, state)
        found[now] = [entry.job_id for entry in plan.assignments]
    assert found == {0.0: ["runs"], 31.0: ["runs"], 50.0: ["worthy"], 85.0: ["waits"]}


def test_jobs_with_a_deadline_wait_while_there_is_no_node() -> None:
    status = known("x", "long").tiers[0]
    urgent = replace(waiting_job("a"), tiers=(replace(status, tier=replace(status.tier, deadline_seconds=1050.0)),))
    policy = UtilityPolicy(UtilitySettings())
    for nodes in ([], [node(cpu_cores=0.0)]):
        seen = replace(snapshot([urgent], nodes), history=HISTORY)
        plan, _ = policy.plan(seen, policy.initial_state())
        assert (plan.assignments, list(plan.waiting)) == ((), ["a"])


def test_nothing_moves_where_memory_is_short() -> None:
    jobs = [known(f"job{number}", "long", node_id="a", migratable=True) for number in range(3)]
    for memory, nodes in ((GIB, {"a", "b"}), (GIB // 2, {"a"})):
        plan = plan_of(*jobs, nodes=[node("a", cpu_cores=1.0), node("b", cpu_cores=1.0, memory_bytes=memory)])
        assert {entry.node_id for entry in plan.assignments} == nodes


# --- Endpoints --------------------------------------------------------------------------------------------------------


def endpoint(name: str = "digits", **changes: Any) -> EndpointView:
    view = EndpointView(name, "tenant", "node", objective_seconds=0.02, requests_per_second=50.0, cpu_cores_used=0.25)
    return replace(view, **changes)


def test_jobs_run_on_the_cores_that_answers_leave() -> None:
    # Answers use one core of two: one job of one core runs, though no endpoint is limited.
    jobs = [known("a", "short"), known("b", "long")]
    plan = plan_of(*jobs, nodes=[node(cpu_cores=2.0)], endpoints=(endpoint(cpu_cores_used=1.0),))
    assert plan.endpoint_shares == {}
    assert weights(plan) == pytest.approx({"a": 0.99, "b": 0.01})
    alone = plan_of(*jobs, nodes=[node(cpu_cores=2.0)])
    assert weights(alone) == pytest.approx({"a": 0.5, "b": 0.5})


def test_a_job_does_not_take_its_endpoint_where_another_one_needs_the_node() -> None:
    # Together they would want 1.6 cores of two; the node that answers for it already is as bad for none.
    views = (endpoint("a", node_id="a", cpu_cores_used=0.8), endpoint("b", node_id="b", cpu_cores_used=0.8))
    nodes = [node("a", cpu_cores=2.0), node("b", cpu_cores=2.0)]
    for name in ("a", "b"):
        job = known("x", "short", node_id="", movable=True, endpoint=name)
        plan = plan_of(job, nodes=nodes, endpoints=views)
        assert [entry.node_id for entry in plan.assignments] == [name]


def test_endpoints_without_an_objective_are_left_alone() -> None:
    plan = plan_of(known("a", "long"), endpoints=(endpoint(objective_seconds=None),))
    assert plan.endpoint_shares == {}
    assert weights(plan) == {"a": 1.0}


@pytest.mark.parametrize(
    "wrong",
    [{"floor": 0}, {"floor": 1}, {"later_tiers": 2}, {"guard_ratio": -1}],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|may be"):
        UtilitySettings(**wrong)


def test_a_state_is_never_changed() -> None:
    policy = UtilityPolicy()
    seen: Snapshot = snapshot([known("a", "short"), known("b", "long")], [node(cpu_cores=1.0)])
    _, state = policy.plan(seen, policy.initial_state())
    copied = repr(state)
    policy.plan(replace(seen, now=2000.0), state)
    assert repr(state) == copied
