from __future__ import annotations

import pytest

from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.scheduling.fifo import FifoPolicy
from tiercel.broker.scheduling.options import Option
from tiercel.broker.scheduling.queue import QueueSettings
from tiercel.broker.scheduling.registry import BUILT_IN, create_policy
from tiercel.broker.scheduling.tradl.policy import TradlPolicy, TradlSettings
from tiercel.broker.scheduling.tradl.rank import TradlWeight
from tiercel.core.errors import InvalidSpecError


def test_every_policy_can_be_made_by_name_and_bears_it() -> None:
    assert {name: create_policy(name).name for name in BUILT_IN} == {name: name for name in BUILT_IN}
    assert isinstance(create_policy("fair"), FairPolicy)


@pytest.mark.parametrize(
    "options", [{"weights": "gap", "beta": 1.5, "window": 4}, {"weights": "gap", "beta": "1.5", "window": "4"}]
)
def test_options_become_settings_also_from_text(options: dict[str, Option]) -> None:
    policy = create_policy("tradl", options)
    assert isinstance(policy, TradlPolicy)
    assert policy.settings == TradlSettings(weights=TradlWeight.GAP, beta=1.5, window=4)


@pytest.mark.parametrize("value", [False, "false", "False"])
def test_yes_and_no_may_be_text(value: Option) -> None:
    policy = create_policy("fifo", {"tier_first": value})
    assert isinstance(policy, FifoPolicy)
    assert policy.settings == QueueSettings(tier_first=False)


@pytest.mark.parametrize(
    ("name", "options", "field", "words"),
    [
        ("best", {}, "policy", "choose one of .*fair, .*tradl"),
        ("fair", {"weights": "eta"}, "policy.weights", "its options: none"),
        ("tradl", {"windows": 3}, "policy.windows", "alpha, beta, fresh_reports"),
        ("tradl", {"weights": "speed"}, "policy.weights", "choose one of eta, growth, gap"),
        ("tradl", {"window": 2.5}, "policy.window", "whole number"),
        ("tradl", {"window": "inf"}, "policy.window", "whole number"),
        ("tradl", {"alpha": "much"}, "policy.alpha", "must be a number"),
        ("tradl", {"beta": 0.5}, "policy", "at least 1"),
        ("fifo", {"tier_first": "maybe"}, "policy.tier_first", "true or false"),
        ("las", {"thresholds": "many"}, "policy", "do not fit"),
    ],
)
def test_what_does_not_exist_or_fit_is_named(name: str, options: dict[str, Option], field: str, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words) as caught:
        create_policy(name, options)
    assert caught.value.field == field
