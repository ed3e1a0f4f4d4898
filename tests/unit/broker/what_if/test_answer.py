"""What-if: the present, gone on with in the simulator, beside the present with changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tiercel.broker.scheduling.interface import (
    CurvePoint,
    EndpointView,
    JobView,
    NodeView,
    PastRun,
    RestartCost,
    Snapshot,
    Trigger,
)
from tiercel.broker.scheduling.registry import policy_names
from tiercel.broker.what_if.answer import ANOTHER, answer
from tiercel.broker.what_if.present import MAX_JOBS, Present, Question, bounded
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.jobs import Direction, Observation, Resources, Tier, TierState, TierStatus
from tiercel.core.shares import Share
from tiercel.core.what_if import AddedNode, Changes, JobPrediction, WhatIf

GIB = 1024**3
NOW = 1_800_000_000.0
NODE = NodeView("n1", 1.0, 64 * GIB)
# 20 CPU seconds to 0.8, 40 to 0.9.
CURVE = PastRun(
    tuple(CurvePoint(2.0 * number, min(0.6 + 0.02 * number, 0.7 + 0.0101 * number)) for number in range(1, 26))
)


def job(
    job_id: str, *, spent: float = 0.0, node: str = "n1", tenant: str = "alice", workload: str = "digits"
) -> JobView:
    seen = tuple(
        Observation(NOW - spent + 2 * number, number, 0.6 + 0.02 * number, 2.0 * number)
        for number in range(1, int(spent / 2) + 1)
    )
    return JobView(
        job_id,
        tenant,
        NOW - 2 * spent - 5.0,
        Direction.MAX,
        (TierStatus(1, Tier(0.8)), TierStatus(2, Tier(0.9))),
        Resources(1.0, GIB),
        node_id=node,
        movable=not node,
        share=Share(0.5) if node else None,
        observations=seen,
        cpu_seconds=spent,
        workload=workload,
        started_at=NOW - spent if node else None,
        max_epochs=40,
        endpoint=job_id,
        name=job_id,
        migratable=bool(node),
    )


def present(
    jobs: Sequence[JobView],
    *,
    nodes: Sequence[NodeView] = (NODE,),
    endpoints: Sequence[EndpointView] = (),
    policy: str = "fair",
) -> Present:
    history = {"digits": (CURVE, CURVE, CURVE)}
    snapshot = Snapshot(NOW, Trigger.INTERVAL, tuple(jobs), tuple(nodes), tuple(endpoints), history)
    return bounded(Present(snapshot, policy, {}, 1.0))


def ask(of: Present, changes: Changes = Changes(), tenant: str = "") -> WhatIf:  # noqa: B008
    return answer(Question(of, changes, tenant))


def only(found: WhatIf, job_id: str) -> JobPrediction:
    return next(each for each in found.jobs if each.id == job_id)


def test_a_job_alone_is_predicted_to_need_what_earlier_runs_needed() -> None:
    found = only(ask(present([job("a", spent=10.0)])), "a")
    first, second = found.tiers
    assert first.present is not None
    assert second.present is not None
    assert first.present.seconds == pytest.approx(10.0, rel=0.25)
    assert second.present.seconds == pytest.approx(30.0, rel=0.25)
    assert first.present.low <= first.present.seconds <= first.present.high


def test_where_other_programs_take_half_of_a_node_all_takes_twice_as_long() -> None:
    present = bounded(Present(Snapshot(NOW, Trigger.INTERVAL, (job("a"),), (NODE,), (), {"digits": (CURVE,)}), "fair"))
    whole = answer(Question(present, Changes())).jobs[0].tiers
    slow = replace(present, snapshot=replace(present.snapshot, given={"n1": 0.5}))
    half = answer(Question(slow, Changes())).jobs[0].tiers
    for one, other in zip(whole, half, strict=True):
        assert one.drawn is not None
        assert other.drawn is not None
        assert other.drawn.seconds == pytest.approx(2 * one.drawn.seconds, rel=0.02)


@pytest.mark.parametrize("spent", [0.0, 10.0])
def test_a_start_that_took_long_beside_others_is_no_work(spent: float) -> None:
    of = present([job("a", spent=spent)])
    slow = {"digits": RestartCost(cold_seconds=60.0, start_seconds={"n1": 60.0}, start_cpu_seconds=1.5)}
    told = only(ask(replace(of, snapshot=replace(of.snapshot, restarts=slow))), "a").tiers
    assert told == only(ask(of), "a").tiers


def test_a_run_that_has_reported_has_started_whatever_others_took() -> None:
    of = present([job("a", spent=4.0)])
    slow = {"digits": RestartCost(start_cpu_seconds=30.0)}
    told = only(ask(replace(of, snapshot=replace(of.snapshot, restarts=slow))), "a").tiers
    assert told == only(ask(of), "a").tiers


def test_a_clock_that_was_set_back_makes_no_job_come_in_a_month() -> None:
    present = bounded(Present(Snapshot(NOW, Trigger.INTERVAL, (job("a"),), (NODE,), (), {"digits": (CURVE,)}), "fair"))
    before = answer(Question(present, Changes())).jobs[0].tiers
    back = replace(present, snapshot=replace(present.snapshot, now=NOW - 30 * 86400.0))
    assert answer(Question(back, Changes())).jobs[0].tiers == before


def test_two_equal_questions_have_two_equal_answers() -> None:
    of, changes = present([job("a", spent=10.0), job("b", node="")]), Changes(policy="fifo")
    assert replace(ask(of, changes), seconds=0.0) == replace(ask(of, changes), seconds=0.0)


def test_without_changes_both_sides_are_the_same() -> None:
    found = ask(present([job("a", spent=10.0), job("b")]))
    assert found.difference == ()
    assert all(tier.present == tier.changed for each in found.jobs for tier in each.tiers)


@pytest.mark.parametrize(
    "changes",
    [Changes(cancel=("b",)), Changes(add_nodes=(AddedNode(cpu_cores=1.0),), policy="utility"), Changes(policy="fifo")],
    ids=["cancelled", "one node more", "fifo"],
)
def test_the_first_job_gains_where_the_other_one_is_not_in_its_way(changes: Changes) -> None:
    of = present([replace(job("a", spent=10.0), submitted_at=NOW - 100), job("b", spent=2.0)])
    first = only(ask(of, changes), "a").tiers[0]
    assert first.present is not None
    assert first.changed is not None
    assert first.changed.seconds < 0.75 * first.present.seconds


def test_one_more_job_makes_the_others_wait() -> None:
    found = ask(present([job("a", spent=10.0)]), Changes(add_like=("a",)))
    first = only(found, "a").tiers[0]
    assert first.present is not None
    assert first.changed is not None
    assert first.changed.seconds > 1.5 * first.present.seconds
    assert only(found, "new-1").tiers[0].changed is not None
    assert any("later" in sentence for sentence in found.difference)


def test_a_node_that_is_gone_moves_its_jobs_or_strands_them() -> None:
    nodes = [NODE, NodeView("n2", 1.0, 64 * GIB)]
    moved = ask(present([job("a", spent=10.0)], nodes=nodes), Changes(remove_nodes=("n1",)))
    assert only(moved, "a").changed.node_id == "n2"
    assert moved.difference == ("a goes on n2 in place of n1",)
    stranded = ask(present([job("a", spent=10.0)]), Changes(remove_nodes=("n1",)))
    assert stranded.difference == ("a waits: it fits on no node",)


def test_of_a_program_that_never_ran_nothing_is_claimed() -> None:
    found = only(ask(present([job("a", workload="new")])), "a")
    assert [tier.present for tier in found.tiers] == [None, None]
    assert found.note.startswith("no earlier run")


def test_a_tenant_reads_no_names_of_others() -> None:
    found = ask(present([job("a", spent=4.0), job("secret", tenant="bob")]), Changes(policy="fifo"), "alice")
    assert [(each.id, each.name) for each in found.jobs] == [("a", "a"), ("", ANOTHER)]
    assert found.jobs[1].tiers == ()
    assert "secret" not in str(found.to_json())
    gone = ask(present([job("secret", tenant="bob")]), Changes(remove_nodes=("n1",)), "alice")
    assert "secret" not in str(gone.to_json())


def test_twice_the_requests_make_answers_late() -> None:
    asked = EndpointView("e", "alice", "n1", objective_seconds=0.1, requests_per_second=20.0, cpu_cores_used=0.7)
    told = ask(present([], endpoints=[asked]), Changes(requests={"e": 2.0}))
    (found,) = told.endpoints
    assert [sentence.partition(" answers ")[0] for sentence in told.difference] == ["endpoint e"]
    assert found.present.in_objective is not None
    assert found.changed.in_objective is not None
    assert found.present.in_objective > 0.5 > found.changed.in_objective


@pytest.mark.parametrize("policy", [name for name in policy_names() if name != "srpt-oracle"])
def test_every_policy_can_be_asked_about(policy: str) -> None:
    reached = replace(
        job("b", spent=22.0), tiers=(TierStatus(1, Tier(0.8), TierState.REACHED, 0.81), TierStatus(2, Tier(0.9)))
    )
    of = present([job("a", spent=10.0), reached, job("c", node="")], policy=policy)
    assert only(ask(of), "a").tiers[0].changed is not None


def test_states_at_the_edge_have_an_answer() -> None:
    done = tuple(TierStatus(n, Tier(0.7 + 0.1 * n), TierState.REACHED, 0.95) for n in (1, 2))
    broken = Observation(NOW, 3, math.nan, math.nan)
    for views, nodes in (
        ([], []),
        ([job("a")], []),
        ([], [NODE]),
        ([job("a")], [NODE]),
        ([replace(job("a", spent=30.0), tiers=done)], [NODE]),
        ([replace(job("a", spent=4.0), observations=(broken,))], [NODE]),
        ([replace(job("a", spent=500.0))], [NODE]),
        ([replace(job("a", spent=10.0), continues=True)], [NODE]),
    ):
        assert len(ask(present(views, nodes=nodes)).jobs) == len(views)


def test_of_very_many_jobs_some_are_left_out_and_that_is_said() -> None:
    found = ask(present([job(f"j{number:03}", node="") for number in range(500)]))
    assert found.left_out == 500 - MAX_JOBS
    assert len(found.jobs) == MAX_JOBS


def test_of_programs_that_no_job_has_only_what_runs_took_is_handed_to_the_child_process() -> None:
    runs = tuple(PastRun(tuple(CurvePoint(float(at), at / 64) for at in range(1, 65))) for _ in range(8))
    history = {"digits": (CURVE,), **{f"program {number}": runs for number in range(511)}}
    similar = {"like digits": runs, "like others": runs}
    costs = {"digits": RestartCost(1.0), "program 1": RestartCost(2.0)}
    jobs = (job("a", spent=10.0), replace(job("b"), workload="new", similar=("nothing", "like others")))
    snapshot = Snapshot(NOW, Trigger.INTERVAL, jobs, (NODE,), (), history, costs, similar)
    kept = bounded(Present(snapshot, "fair")).snapshot
    assert kept.history["digits"] == (CURVE,)
    assert all(len(run.curve) == 1 for name, of in kept.history.items() if name != "digits" for run in of)
    assert (kept.similar, kept.restarts) == ({"like others": runs}, {"digits": RestartCost(1.0)})
    assert [kept.earlier_runs(each) for each in jobs] == [snapshot.earlier_runs(each) for each in jobs]
    told, all_told = (
        replace(answer(Question(Present(each, "fair"), Changes())), seconds=0.0) for each in (kept, snapshot)
    )
    assert told == all_told


def test_what_there_is_not_is_refused() -> None:
    of = present([job("a")])
    for changes in (
        Changes(cancel=("x",)),
        Changes(remove_nodes=("x",)),
        Changes(add_nodes=(AddedNode("x"),)),
        Changes(requests={"x": 2.0}),
    ):
        with pytest.raises(NotFoundError):
            ask(of, changes)
    with pytest.raises(InvalidSpecError):
        ask(of, Changes(policy="no-such"))
