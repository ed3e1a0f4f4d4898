from __future__ import annotations

import pytest

from tiercel.broker.scheduling.dqoes.rule import (
    DqoesMode,
    DqoesWeight,
    QoeClass,
    RuleSettings,
    Service,
    classify,
    limits,
)

# Mao et al., 2020: objectives 10, 20, 40 s, measured 5, 20.5, 60 s, with 0.5, 0.3 and 0.2 of the host in use.
VECTOR = [
    Service("fast", 10.0, 5.0, 0.5),
    Service("right", 20.0, 20.5, 0.3),
    Service("slow", 40.0, 60.0, 0.2),
]
MODES = [RuleSettings(mode=mode, weights=weights) for mode in DqoesMode for weights in DqoesWeight]


def test_classes_of_the_vector() -> None:
    assert [classify(service, 0.1) for service in VECTOR] == [QoeClass.FASTER, QoeClass.SATISFIED, QoeClass.SLOWER]
    assert [service.quality for service in VECTOR] == [5.0, -0.5, -20.0]


@pytest.mark.parametrize("settings", MODES)
def test_limits_of_the_vector(settings: RuleSettings) -> None:
    assert limits(VECTOR, settings) == pytest.approx({"fast": 0.45, "right": 0.30, "slow": 0.25}, abs=1e-12)


def test_the_band_belongs_to_the_satisfied() -> None:
    assert classify(Service("s", 10.0, 9.0, 0.1), 0.1) is QoeClass.SATISFIED
    assert classify(Service("s", 10.0, 11.0, 0.1), 0.1) is QoeClass.SATISFIED
    assert classify(Service("s", 10.0, 8.99, 0.1), 0.1) is QoeClass.FASTER
    assert classify(Service("s", 10.0, 11.01, 0.1), 0.1) is QoeClass.SLOWER


def test_one_that_answers_nothing_is_slower() -> None:
    assert classify(Service("s", 10.0, None, 0.1), 0.1) is QoeClass.SLOWER


TWO_FAST = [Service("lax", 100.0, 60.0, 0.4), Service("strict", 10.0, 4.0, 0.4)]


def test_relative_weights_cut_by_quality_over_objective() -> None:
    # budget 0.1 * 0.8; relative qualities 0.4 and 0.6
    given = limits(TWO_FAST, RuleSettings(mode=DqoesMode.LITERAL))
    assert given == pytest.approx({"lax": 0.4 - 0.032, "strict": 0.4 - 0.048})


def test_absolute_weights_cut_by_quality() -> None:
    # qualities 40 s and 6 s
    given = limits(TWO_FAST, RuleSettings(mode=DqoesMode.LITERAL, weights=DqoesWeight.ABSOLUTE))
    assert given == pytest.approx({"lax": 0.4 - 0.08 * 40 / 46, "strict": 0.4 - 0.08 * 6 / 46})


def test_idle_cpu_goes_to_the_slower_unless_the_rule_is_taken_literally() -> None:
    slow = [Service("a", 10.0, 20.0, 0.2), Service("b", 10.0, 40.0, 0.2)]
    assert limits(slow, RuleSettings(mode=DqoesMode.LITERAL)) == pytest.approx({"a": 0.2, "b": 0.2})
    # 0.6 is idle and quality is -10 s and -30 s; a needs no more than 0.4, which is what its portion brings it below
    assert limits(slow, RuleSettings()) == pytest.approx({"a": 0.35, "b": 0.65})


def test_nobody_is_moved_past_its_objective_where_idle_cpu_is_given_out() -> None:
    assert limits([Service("slow", 10.0, 20.0, 0.1)], RuleSettings())["slow"] == pytest.approx(0.2)
    fast = Service("fast", 10.0, 8.9, 0.5, limit=0.5)
    assert limits([fast], RuleSettings(beta=0.5))["fast"] == pytest.approx(0.445)
    assert limits([fast], RuleSettings(beta=0.5, mode=DqoesMode.LITERAL))["fast"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("delay", "limit", "expected"),
    [
        (8.0, 0.3, 0.1 + 0.2 * 0.8),  # faster: the headroom shrinks by how early it is
        (1.0, 0.3, 0.1 + 0.2 * 0.5),  # by half at most
        (15.0, 0.2, 0.1 + 0.1 * 1.5),  # slower: it grows
        (90.0, 0.2, 0.1 + 0.1 * 2),  # to twice itself at most
        (1.0, None, 0.1 + 0.1 * 0.5),  # without a limit it is held to have as much headroom as it uses
    ],
)
def test_one_that_leaves_some_of_its_limit_is_steered_by_its_headroom(
    delay: float, limit: float | None, expected: float
) -> None:
    service = Service("s", 10.0, delay, 0.1, limit)
    assert limits([service], RuleSettings()) == pytest.approx({"s": expected})


def test_where_not_all_fits_the_headroom_shrinks_and_nobody_gets_less_than_it_uses() -> None:
    busy = Service("busy", 10.0, 10.0, 0.45, limit=0.5)
    idle = Service("idle", 10.0, 10.0, 0.1, limit=0.5)
    given = limits([busy, idle], RuleSettings(), capacity=0.7)
    assert given == pytest.approx({"busy": 0.45, "idle": 0.25})


def test_a_satisfied_one_keeps_its_limit_although_it_uses_less() -> None:
    service = Service("s", 10.0, 10.0, 0.2, limit=0.3)
    assert limits([service], RuleSettings()) == pytest.approx({"s": 0.3})
    assert limits([service], RuleSettings(mode=DqoesMode.LITERAL)) == pytest.approx({"s": 0.2})


def test_limits_fit_into_the_capacity_and_nobody_is_cut_to_nothing() -> None:
    full = [Service(f"s{index}", 10.0, 10.0, 0.2, limit=0.5) for index in range(4)]
    assert limits(full, RuleSettings(), capacity=0.8) == pytest.approx({f"s{index}": 0.2 for index in range(4)})
    assert limits(full, RuleSettings(), capacity=0.4) == pytest.approx({f"s{index}": 0.1 for index in range(4)})
    idle = limits([Service("s", 10.0, 1e-6, 1e-6)], RuleSettings())
    assert idle == pytest.approx({"s": 0.01})


@pytest.mark.parametrize(
    "changes", [{"alpha": 0.0}, {"beta": 0.0}, {"beta": 1.0}, {"min_limit": 0.0}, {"alpha": float("nan")}]
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        RuleSettings(**changes)  # type: ignore[arg-type]
