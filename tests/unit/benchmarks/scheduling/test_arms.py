from __future__ import annotations

import pytest

from benchmarks.scheduling.arms import ARMS, PRODUCT_SLICE_SECONDS, Arm, oracle_options, why_missing
from tiercel.broker.scheduling.registry import create_policy
from tiercel.broker.scheduling.srpt_oracle import SrptOraclePolicy


def test_an_arm_whose_policy_or_option_is_not_there_says_so() -> None:
    assert "nonsense" in why_missing(Arm("a", "nonsense", "b"))
    assert "colour" in why_missing(Arm("a", "fair", "b", {"colour": "red"}))
    assert why_missing(ARMS["fair"]) == ""


@pytest.mark.parametrize("name", ["flowcon", "flowcon-literal", "srpt-oracle"])
def test_options_of_arms_are_those_of_their_policies(name: str) -> None:
    assert why_missing(ARMS[name]) == ""


def test_the_oracle_is_told_in_words_that_it_understands() -> None:
    policy = create_policy("srpt-oracle", oracle_options({"one-1": (2.5, 9.0), "two-2": (3.0, 4.0)}))
    assert isinstance(policy, SrptOraclePolicy)
    assert policy.settings.works_by_name == {"one-1": (2.5, 9.0), "two-2": (3.0, 4.0)}


def test_all_arms_but_the_named_ones_have_the_same_slices() -> None:
    named = {"fair": 0.0, "utility-plain-slices": 0.0, "utility-product-slices": PRODUCT_SLICE_SECONDS}
    assert {name: ARMS[name].time_slice_seconds for name in named} == named
    assert len({arm.time_slice_seconds for name, arm in ARMS.items() if name not in named}) == 1
