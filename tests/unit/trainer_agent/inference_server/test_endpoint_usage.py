from __future__ import annotations

from tiercel.trainer_agent.inference_server.endpoint_usage import (
    MOST_ENDPOINTS,
    ServingUsage,
    Totals,
    UsageMeter,
    usage_from_json,
)
from tiercel.v1 import common_pb2, nodes_pb2


def usage(uptime: float, **requests: int) -> ServingUsage:
    """Every request was answered in 0.5 s and took 0.25 s of CPU."""
    return ServingUsage(uptime, {name: Totals(n, n, n * 0.5, n * 0.25) for name, n in requests.items()})


def told(meter: UsageMeter) -> dict[str, tuple[float, int, int, float, float]]:
    return {
        each.endpoint: (each.seconds, each.requests, each.answers, each.delay_seconds, each.cpu_seconds)
        for each in meter.take()
    }


def test_what_was_counted_before_the_first_look_is_not_told() -> None:
    meter = UsageMeter()
    assert told(meter) == {}
    meter.note(usage(100.0, a=50))
    assert told(meter) == {}


def test_the_change_since_the_last_question_is_told_over_several_looks() -> None:
    meter = UsageMeter()
    meter.note(usage(100.0, a=50))
    meter.note(usage(101.0, a=52))
    meter.note(usage(102.0, a=54, b=2))
    assert told(meter) == {"a": (2.0, 4, 4, 2.0, 1.0), "b": (2.0, 2, 2, 1.0, 0.5)}
    assert told(meter) == {}


def test_endpoints_that_nobody_asked_are_left_out() -> None:
    meter = UsageMeter()
    meter.note(usage(1.0, a=5, b=5))
    meter.note(usage(2.0, a=5, b=6))
    assert list(told(meter)) == ["b"]


def test_a_new_server_begins_anew() -> None:
    meter = UsageMeter()
    meter.note(usage(100.0, a=50))
    meter.note(usage(101.0, a=60))
    meter.note(usage(0.5, a=3))
    assert told(meter) == {}
    meter.note(usage(1.5, a=4))
    assert told(meter) == {"a": (1.0, 1, 1, 0.5, 0.25)}


def test_a_request_that_is_not_answered_yet_is_told() -> None:
    meter = UsageMeter()
    meter.note(ServingUsage(1.0, {}))
    meter.note(ServingUsage(2.0, {"a": Totals(requests=1)}))
    assert meter.take() == [nodes_pb2.EndpointUsage(endpoint="a", seconds=1.0, requests=1)]


def test_what_the_server_leaves_out_did_not_change() -> None:
    meter = UsageMeter()
    assert meter.since == 0.0
    meter.note(usage(100.0, a=50, b=5))
    assert meter.since == 100.0
    meter.note(usage(101.0, a=52))
    meter.note(usage(102.0, b=6))
    assert told(meter) == {"a": (2.0, 2, 2, 1.0, 0.5), "b": (2.0, 1, 1, 0.5, 0.25)}
    meter.note(usage(103.0))
    assert told(meter) == {}


def test_another_server_is_asked_for_all_and_none_of_that_is_news() -> None:
    meter = UsageMeter()
    meter.note(usage(100.0, a=50))
    meter.begin_anew()
    assert (meter.since, told(meter)) == (0.0, {})
    meter.note(usage(500.0, a=80))
    meter.note(usage(501.0, a=81))
    assert told(meter) == {"a": (1.0, 1, 1, 0.5, 0.25)}


def test_failures_answers_on_time_and_windows_are_told() -> None:
    meter = UsageMeter()
    window = common_pb2.DelayWindow(seconds=10.0, answers=7, failures=2, p95_seconds=0.5)
    meter.note(ServingUsage(1.0, {"a": Totals(failures=1)}))
    meter.note(ServingUsage(2.0, {"a": Totals(9, 7, 1.0, 1.0, 3, 4)}, {"a": (window,)}, 0.25))
    (message,) = meter.take()
    assert (message.failures, message.on_time, list(message.windows)) == (2, 4, [window])
    assert meter.lag_seconds == 0.25


def test_answers_of_each_variant_are_told() -> None:
    meter = UsageMeter()

    def counted(uptime: float, small: int, large: int) -> ServingUsage:
        line = {"name": "a", "requests": small + large, "answers": small + large, "delay_seconds": 0, "cpu_seconds": 0}
        content = line | {"answered_by": {"small": small, "large": large}}
        return usage_from_json({"uptime_seconds": uptime, "models": [content]})

    meter.note(counted(1.0, 5, 2))
    meter.note(counted(2.0, 8, 2))
    (told,) = meter.take()
    assert dict(told.answered_by) == {"small": 3}
    meter.note(counted(3.0, 9, 4))
    (told,) = meter.take()
    assert dict(told.answered_by) == {"small": 1, "large": 2}


def test_time_on_accelerators_is_told_like_time_on_cpus() -> None:
    line = {"name": "a", "requests": 1, "answers": 1, "delay_seconds": 0.5, "cpu_seconds": 0.1}
    meter = UsageMeter()
    for uptime, seconds in ((1.0, 0.25), (2.0, 0.75)):
        meter.note(usage_from_json({"uptime_seconds": uptime, "models": [line | {"accelerator_seconds": seconds}]}))
    (told_of,) = meter.take()
    assert (told_of.accelerator_seconds, told_of.cpu_seconds) == (0.5, 0.0)
    assert usage_from_json({"uptime_seconds": 1.0, "models": [line]}).totals["a"].accelerator_seconds == 0.0


def test_what_is_known_of_versions_is_told_once_it_changes_with_all_usage_and_to_whoever_asks_anew() -> None:
    meter = UsageMeter()
    feedback = [{"model": "b", "variant": "", "version": "2", "rows": 40, "right": 30}]

    def looked(uptime: float, **rows: int) -> ServingUsage:
        known = {"reference_rows": 500, "features": 1, "drifted": False, "bound": 0.2}
        farthest = [{"name": "x", "distance": 0.1}]
        lines = [
            {"model": "a", "variant": variant, "version": "3", "rows": count, "farthest": farthest, **known}
            for variant, count in rows.items()
        ]
        return usage_from_json({"uptime_seconds": uptime, "models": [], "inputs": lines, "feedback": feedback})

    meter.note(looked(1.0, small=500, large=500))
    meter.note(looked(2.0))
    told_of, right_of = meter.take()
    assert [(each.version, each.rows, each.right) for each in right_of.feedback] == [(2, 40, 30)]
    assert [(each.version, each.rows, each.farthest[0].name) for each in told_of.inputs] == [(3, 500, "x")] * 2
    meter.note(looked(3.0))
    assert meter.take() == []
    meter.note(looked(4.0, large=0))
    (told_of,) = meter.take()
    assert [each.rows for each in told_of.inputs] == [500, 0], "what is left out did not change"
    meter.tell_anew()
    assert meter.take() == [], "there is no time yet that it could be of"
    meter.note(looked(5.0))
    asked, right_of = meter.take()
    assert [each.rows for each in asked.inputs] == [500, 0]
    assert [each.rows for each in right_of.feedback] == [40]
    meter.note(looked(6.0))
    assert meter.take() == []
    feedback.clear()
    meter.begin_anew()
    meter.note(looked(1.0))
    meter.note(looked(2.0))
    assert meter.take() == []


def test_names_without_end_are_not_remembered_and_no_count_of_before_is_told_as_news() -> None:
    meter = UsageMeter()
    meter.note(usage(1.0, a=50, **{f"gone{number}": 1 for number in range(MOST_ENDPOINTS)}))
    meter.note(usage(2.0, b=5))
    assert (meter.since, told(meter)) == (0.0, {})
    meter.note(usage(3.0, a=52, b=5))
    meter.note(usage(4.0, a=53))
    assert told(meter) == {"a": (1.0, 1, 1, 0.5, 0.25)}
