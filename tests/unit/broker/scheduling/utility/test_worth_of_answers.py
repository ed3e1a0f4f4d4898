"""What a better version is worth to those who ask its endpoint; all figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, node, past, snapshot, tiers
from tiercel.broker.scheduling.interface import EndpointView, JobView, Plan
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.serving import Traffic, asked
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.jobs import Direction, Observation

SETTINGS = UtilitySettings(answers_per_value=100.0, window_seconds=60.0)


def view(name: str, rate: float, **changes: object) -> EndpointView:
    seen = EndpointView(name, "tenant", "n1", requests_per_second=rate, quality=0.5)
    return replace(seen, **changes)  # type: ignore[arg-type]  # fields of the view, whichever a test is about


def traffic_at(seen: EndpointView) -> Traffic:
    found = asked([seen], SETTINGS).endpoints[seen.name]
    assert found is not None
    return found


def test_answers_in_time_of_the_next_minute_are_counted_in_tiers() -> None:
    traffic = traffic_at(view("a", 50.0, in_objective=0.5))
    assert traffic.answers == 50.0 * 0.5 * 60.0 / 100.0
    assert traffic.gain(replace(job("j"), tenant_weight=2.0), 0.9) == pytest.approx(2.0 * 15.0 * 0.4)


def test_what_nobody_asks_or_what_has_no_accuracy_is_worth_nothing_more() -> None:
    found = asked([view("idle", 0.0), view("loss", 10.0, quality=None)], SETTINGS)
    assert found.endpoints == {"idle": None, "loss": None}
    assert asked([view("idle", 0.0)], SETTINGS).expected is None


def test_an_endpoint_without_a_version_is_expected_to_be_asked_as_the_others_are_in_the_mean() -> None:
    found = asked([view("a", 50.0), view("b", 100.0, in_objective=0.1), view("idle", 0.0)], SETTINGS)
    new = found.of(replace(job("j"), endpoint="new"))
    assert new == Traffic(20.0 * 60.0 / 100.0, None)
    assert new.gain(job("j"), 0.9) == pytest.approx(12.0 * 0.9)
    assert found.of(replace(job("j"), endpoint="idle")) is None
    assert found.of(replace(job("j"), endpoint="")) is None


def test_a_tier_that_is_no_better_than_the_live_version_is_worth_nothing_more() -> None:
    assert traffic_at(view("a", 50.0, quality=0.95)).gain(job("j"), 0.9) == 0.0


def test_a_job_whose_metric_falls_has_no_accuracy_to_compare() -> None:
    assert traffic_at(view("a", 50.0)).gain(replace(job("j"), direction=Direction.MIN), 0.9) == 0.0


def test_what_changes_by_chance_only_is_the_same() -> None:
    assert asked([view("a", 50.1)], SETTINGS) == asked([view("a", 49.8)], SETTINGS)
    assert traffic_at(view("a", 50.1)) == Traffic(30.0, 0.5)
    assert traffic_at(view("a", 61.0)) == Traffic(37.0, 0.5)


# Programs that need 4 and 40 CPU seconds to 0.9.
HISTORY = {"short": past((1, 0.1), (4, 0.9), (9, 0.99)), "long": past((10, 0.1), (40, 0.9), (90, 0.99))}
UNASKED = view("nobody asks this", 0.0)
SHORT = replace(job("short", cpu_cores=1.0), workload="short", endpoint="nobody asks this")
LONG = replace(job("long", cpu_cores=1.0), workload="long", endpoint="asked")


def plan_of(*jobs: JobView, endpoint: EndpointView) -> Plan:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    seen = replace(snapshot(jobs, [node(cpu_cores=1.0)]), history=HISTORY, endpoints=(endpoint, UNASKED))
    return policy.plan(seen, policy.initial_state())[0]


# With ten times the work, the long job goes first where those who ask have of it what nine tiers are worth:
# 0.4 better x 60 s / 100 = 0.24 tiers for each request a second.
@pytest.mark.parametrize(
    ("endpoint", "first"),
    [
        (view("asked", 50.0), "long"),
        (view("asked", 20.0), "short"),
        (view("asked", 50.0, in_objective=0.1), "short"),
        (view("asked", 50.0, quality=0.85), "short"),
        (view("another", 50.0), "long"),  # no version yet, and others are asked
        (view("another", 0.0), "short"),
    ],
)
def test_who_asks_decides_who_runs(endpoint: EndpointView, first: str) -> None:
    assert plan_of(SHORT, LONG, endpoint=endpoint).assignments[0].job_id == first


def test_the_order_changes_when_applications_come_and_again_when_they_go() -> None:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    quiet = replace(snapshot([SHORT, LONG], [node(cpu_cores=1.0)]), history=HISTORY)
    busy = replace(quiet, endpoints=(view("asked", 50.0), UNASKED))
    state, first = policy.initial_state(), []
    for seen in (quiet, busy, quiet):
        plan, state = policy.plan(seen, state)
        first.append(plan.assignments[0].job_id)
    assert first == ["short", "long", "short"]


def test_the_reason_says_so() -> None:
    plan = plan_of(SHORT, LONG, endpoint=view("asked", 50.0))
    reason = plan.assignments[0].share.reason
    assert "going by earlier runs of the same program; to those who ask its endpoint worth 12 more: " in reason
    assert "who ask" not in plan.assignments[1].share.reason


# A tenth of the work of the first version. 60 who ask each second get an answer that is better by what is missing to
# 0.95, and 30 who will, in the mean of both endpoints that have a version, get one of 0.9 where they get none.
@pytest.mark.parametrize(
    ("quality", "order"), [(0.9, ["better", "first", "short"]), (0.94, ["first", "better", "short"])]
)
def test_a_first_version_counts_what_those_will_get_who_are_expected_to_ask(quality: float, order: list[str]) -> None:
    seen = tuple(Observation(at, int(at), value, at) for at, value in ((1.0, 0.1), (4.0, 0.9)))
    second = replace(SHORT, tiers=tiers(0.9, 0.95, reached=1), observations=seen, cpu_seconds=4.0)
    better = replace(second, id="better", endpoint="asked")
    first = replace(LONG, id="first", endpoint="cannot be asked yet")
    plan = plan_of(second, better, first, endpoint=view("asked", 60.0, quality=quality))
    assert [entry.job_id for entry in plan.assignments] == order
    reason = plan.assignments[order.index("first")].share.reason
    assert "; to those who will ask its endpoint, if it is asked as others are, worth 16 more: " in reason
