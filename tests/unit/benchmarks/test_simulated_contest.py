"""Endpoints that do not fit on their nodes, and constants that have another value for a while."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import simulated_contest
from benchmarks.simulated_contest import QUALITIES, RULES, Rule, contest, scenario, section
from benchmarks.simulated_policies import otherwise
from benchmarks.simulated_served import scenario as one_a_node
from tiercel.broker.scheduling.utility import serving


def test_three_endpoints_of_a_node_want_what_one_would() -> None:
    found, one = scenario(0.9), one_a_node(0.9, "utility")
    assert Counter(each.node_id for each in found.endpoints) == {node.id: len(QUALITIES) for node in found.nodes}
    assert {each.name for each in one.endpoints} < {each.name for each in found.endpoints}

    of_three, of_one = (
        [sum(each.rate.per_second(now, 1) for each in kind.endpoints if each.rate is not None) for now in range(100)]
        for kind in (found, one)
    )
    assert of_three == pytest.approx(of_one)


def test_a_constant_is_another_one_only_meanwhile() -> None:
    before = serving._FULL
    with otherwise({"utility.serving._FULL": 0.5}):
        assert serving._FULL == 0.5
    assert before == serving._FULL
    with pytest.raises(AttributeError), otherwise({"utility.serving.NOTHING": 1}):
        pass


@pytest.mark.parametrize("name", RULES)
def test_every_rule_names_what_there_is(name: str) -> None:
    with otherwise(RULES[name].constants):
        pass


def test_a_row_for_each_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_contest, "contest", lambda load, rule, seed: (2.0 if rule == Rule() else 1.0, load))
    monkeypatch.setattr(simulated_contest, "satisfied", lambda rule, seeds: 4.0)
    rows = section(simulated_contest.compare(range(1, 3))).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["as it is", *RULES]
    assert rows[-1].count("0.50 (0.50 … 0.50), 1.00") == 3


def test_what_is_simulated_is_the_same_again() -> None:
    assert contest(1.4, Rule(), 1) == contest(1.4, Rule(), 1)
