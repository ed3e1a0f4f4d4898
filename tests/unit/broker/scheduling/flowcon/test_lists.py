from __future__ import annotations

import dataclasses

import pytest

from tiercel.broker.scheduling.flowcon.lists import (
    FlowconList,
    FlowconRecord,
    FlowconRule,
    all_completing,
    one_pass,
)

NEW, WATCHING, COMPLETING = FlowconList


def at(where: FlowconList, growth: float | None, limit: float = 1.0, best: float = 0.0) -> FlowconRecord:
    return FlowconRecord(list=where, limit=limit, growth=growth, best=best, fresh=growth is not None)


def lists(records: list[FlowconRecord]) -> list[FlowconList]:
    return [record.list for record in records]


def limits(records: list[FlowconRecord]) -> list[float]:
    return [record.limit for record in records]


def test_the_papers_vector() -> None:
    # Zheng et al., 2019: S = 0.15, floor 1/4; caps 0.80, unchanged, max(0.0667, 0.25)
    after = one_pass([at(NEW, 0.12), at(NEW, 0.02, limit=0.6), at(WATCHING, 0.01)], alpha=0.05)
    assert lists(after) == [NEW, WATCHING, COMPLETING]
    assert limits(after) == pytest.approx([0.80, 0.6, 0.25])


@pytest.mark.parametrize("count", [1, 2, 5, 15])
def test_the_floor_is_one_part_of_one_more_than_there_are(count: int) -> None:
    records = [at(NEW, 1000.0)] + [at(WATCHING, 1e-6)] * (count - 1) + [at(WATCHING, 1e-9)]
    assert one_pass(records, alpha=0.05)[-1].limit == pytest.approx(1 / (count + 2))
    assert one_pass(records, alpha=0.05, beta=2.0)[-1].limit == pytest.approx(1 / (2 * (count + 1)))


def test_growth_brings_a_completing_job_back() -> None:
    after = one_pass([at(COMPLETING, 0.3, limit=0.2), at(NEW, 0.1)], alpha=0.05)
    assert lists(after) == [NEW, NEW]
    assert limits(after) == pytest.approx([0.75, 0.25])


def test_limits_are_lifted_one_pass_after_the_last_job_became_completing() -> None:
    once = one_pass([at(COMPLETING, 0.01, limit=0.5), at(WATCHING, 0.01, limit=0.4)], alpha=0.05)
    assert all_completing(once)
    assert limits(once) == pytest.approx([0.5, 0.5])  # 0.5 is above the floor of 1/3
    twice = one_pass(once, alpha=0.05)
    assert limits(twice) == [1.0, 1.0]


def test_a_job_without_history_is_left_alone() -> None:
    after = one_pass([at(NEW, None), at(NEW, 0.2)], alpha=0.05)
    assert lists(after) == [NEW, NEW]
    assert limits(after) == [1.0, 1.0]
    assert not all_completing(after)


def test_a_silent_job_stays_on_its_list_and_counts_with_what_is_known_of_it() -> None:
    silent = dataclasses.replace(at(NEW, 0.01), fresh=False)
    after = one_pass([silent, at(NEW, 0.09)], alpha=0.05)
    assert lists(after) == [NEW, NEW]
    assert limits(after) == pytest.approx([0.1, 0.9])


def test_no_growth_at_all_leaves_every_limit() -> None:
    after = one_pass([at(NEW, 0.0, limit=0.7), at(WATCHING, 0.0, limit=0.3)], alpha=0.05)
    assert lists(after) == [WATCHING, COMPLETING]
    assert limits(after) == [0.7, 0.3]


def test_a_scale_free_alpha_is_a_part_of_the_jobs_own_best_growth() -> None:
    records = [at(NEW, 0.02, best=0.1), at(NEW, 0.02, best=0.5)]
    assert lists(one_pass(records, alpha=0.1, scale_free=True)) == [NEW, WATCHING]
    assert lists(one_pass(records, alpha=0.1)) == [WATCHING, WATCHING]


def test_the_multiplicative_rule_goes_step_by_step_from_the_present_limit() -> None:
    records = [at(NEW, 0.3, limit=0.5), at(WATCHING, 0.0, limit=0.6), at(NEW, 0.1, limit=0.9)]
    after = one_pass(records, alpha=0.05, rule=FlowconRule.MULTIPLICATIVE)
    # 0.5 * (1 + 3/4); 0.6 * (1 - 0); 0.9 * (1 + 1/4) is more than all
    assert limits(after) == pytest.approx([0.875, 0.6, 1.0])
    after = one_pass([at(WATCHING, 0.04, limit=0.3), at(NEW, 0.16)], alpha=0.05, rule=FlowconRule.MULTIPLICATIVE)
    # 0.3 * (1 - 1/5) is below the floor of 1/3
    assert after[0].limit == pytest.approx(1 / 3)


def test_the_multiplicative_rule_freezes_when_all_are_completing() -> None:
    records = [at(COMPLETING, 0.01, limit=0.2)] * 3
    assert limits(one_pass(records, alpha=0.05, rule=FlowconRule.MULTIPLICATIVE)) == [0.5, 0.5, 0.5]
