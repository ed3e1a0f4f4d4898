"""What a better version is worth to those who ask its endpoint; all figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, node, past, snapshot, tiers
from tiercel.broker.scheduling.interface import EndpointView, JobView, Plan
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.serving import Traffic, traffic_of
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Direction, Observation

SETTINGS = UtilitySettings(answers_per_value=100.0, window_seconds=60.0)


def asked(name: str, rate: float, **changes: object) -> EndpointView:
    view = EndpointView(name, "tenant", "n1", requests_per_second=rate, quality=0.5)
    return replace(view, **changes)  # type: ignore[arg-type]  # fields of the view, whichever a test is about


def test_answers_in_time_of_the_next_minute_are_counted_in_tiers() -> None:
    found = traffic_of([asked("a", 50.0, in_objective=0.5, tenant_weight=2.0)], SETTINGS)
    assert found["a"].answers == 50.0 * 0.5 * 2.0 * 60.0 / 100.0
    assert found["a"].gain(job("j"), 0.9) == pytest.approx(30.0 * 0.4)


def test_what_nobody_asks_or_what_has_no_accuracy_is_left_out() -> None:
    assert traffic_of([asked("idle", 0.0), asked("loss", 10.0, quality=None)], SETTINGS) == {}


def test_a_tier_that_is_no_better_than_the_live_version_is_worth_nothing_more() -> None:
    traffic = traffic_of([asked("a", 50.0, quality=0.95)], SETTINGS)["a"]
    assert traffic.gain(job("j"), 0.9) == 0.0


def test_a_job_whose_metric_falls_has_no_accuracy_to_compare() -> None:
    traffic = traffic_of([asked("a", 50.0)], SETTINGS)["a"]
    assert traffic.gain(replace(job("j"), direction=Direction.MIN), 0.9) == 0.0


def test_what_changes_by_chance_only_is_the_same() -> None:
    calm, busier = ({"a": Traffic(answers, 0.5)} for answers in (30.0, 37.0))
    assert traffic_of([asked("a", 50.1)], SETTINGS) == traffic_of([asked("a", 49.8)], SETTINGS) == calm
    assert traffic_of([asked("a", 61.0)], SETTINGS) == busier


# Programs that need 4 and 40 CPU seconds to 0.9.
HISTORY = {"short": past((1, 0.1), (4, 0.9), (9, 0.99)), "long": past((10, 0.1), (40, 0.9), (90, 0.99))}
SHORT = replace(job("short", cpu_cores=1.0), workload="short", endpoint="nobody asks this")
LONG = replace(job("long", cpu_cores=1.0), workload="long", endpoint="asked")


def plan_of(*jobs: JobView, endpoint: EndpointView) -> Plan:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    seen = replace(snapshot(jobs, [node(cpu_cores=1.0)]), history=HISTORY, endpoints=(endpoint,))
    return policy.plan(seen, policy.initial_state())[0]


# With ten times the work, the long job goes first where those who ask have of it what nine tiers are worth:
# 0.4 better x 60 s / 100 = 0.24 tiers for each request a second.
@pytest.mark.parametrize(
    ("endpoint", "first"),
    [
        (asked("asked", 50.0), "long"),
        (asked("asked", 20.0), "short"),
        (asked("asked", 50.0, in_objective=0.1), "short"),
        (asked("asked", 50.0, quality=0.85), "short"),
        (asked("another", 50.0), "short"),
    ],
)
def test_who_asks_decides_who_runs(endpoint: EndpointView, first: str) -> None:
    assert plan_of(SHORT, LONG, endpoint=endpoint).assignments[0].job_id == first


def test_the_order_changes_when_applications_come_and_again_when_they_go() -> None:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    quiet = replace(snapshot([SHORT, LONG], [node(cpu_cores=1.0)]), history=HISTORY)
    busy = replace(quiet, endpoints=(asked("asked", 50.0),))
    state, first = policy.initial_state(), []
    for seen in (quiet, busy, quiet):
        plan, state = policy.plan(seen, state)
        first.append(plan.assignments[0].job_id)
    assert first == ["short", "long", "short"]


def test_the_reason_says_so() -> None:
    plan = plan_of(SHORT, LONG, endpoint=asked("asked", 50.0))
    reason = plan.assignments[0].share.reason
    assert "going by earlier runs of the same program; to those who ask its endpoint worth 12 more: " in reason
    assert "who ask" not in plan.assignments[1].share.reason


@pytest.mark.parametrize(("rate", "order"), [(60.0, ["better", "first", "short"]), (1.0, ["first", "better", "short"])])
def test_a_better_version_for_many_comes_before_a_first_one_and_for_few_behind_it(
    rate: float, order: list[str]
) -> None:
    seen = tuple(Observation(at, int(at), value, at) for at, value in ((1.0, 0.1), (4.0, 0.9)))
    second = replace(SHORT, tiers=tiers(0.9, 0.95, reached=1), observations=seen, cpu_seconds=4.0)
    better = replace(second, id="better", endpoint="asked")
    first = replace(LONG, id="first", endpoint="cannot be asked yet")
    # 0.05 better x 60 s / 100 = 0.03 tiers for each request a second, with a tenth of the work.
    plan = plan_of(second, better, first, endpoint=asked("asked", rate, quality=0.9))
    assert [entry.job_id for entry in plan.assignments] == order
