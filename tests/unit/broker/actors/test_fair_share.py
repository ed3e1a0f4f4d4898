"""Jobs are shown with weights by use, and as the same objects while nothing changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.actors.fair_share import FairShare
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.core.jobs import Direction, Resources, Tier, TierStatus
from tiercel.core.tenant_use import TenantUse

NODES = [NodeView("n1", 2.0, 2**34)]
HOUR = 3600.0


def job(name: str, tenant: str) -> JobView:
    return JobView(name, tenant, 0.0, Direction.MAX, (TierStatus(1, Tier(0.9)),), Resources())


def share_of(used: dict[str, float]) -> FairShare:
    return FairShare(lambda tenant: TenantUse(tenant, used.get(tenant, 0.0)))


def test_jobs_are_shown_as_they_are_where_there_is_nobody_to_compare_with_or_little_to() -> None:
    alone = [job("a", "alice"), job("b", "alice")]
    assert share_of({"alice": 1e9}).weighted(alone, NODES) is alone
    both = [job("a", "alice"), job("b", "bob")]
    assert share_of({"alice": 30.0}).weighted(both, NODES) is both


def test_who_has_used_more_counts_for_less_in_steps() -> None:
    used = {"alice": 300 * HOUR}
    share, jobs = share_of(used), [job("a", "alice"), job("b", "bob"), job("c", "bob")]
    first = share.weighted(jobs, NODES)
    assert [each.id for each in first] == ["a", "b", "c"]
    assert [each.tenant_weight for each in first] == pytest.approx([0.5, 2.0, 2.0])
    assert [share.factor_of(name) for name in ("alice", "bob", "nobody")] == pytest.approx([0.5, 2.0, 1.0])
    used["alice"] += 1.0
    again = share.weighted(jobs, NODES)
    assert all(now is before for now, before in zip(again, first, strict=True)), "policies look at what is new"
    changed = replace(jobs[1], cpu_seconds=7.0)
    news = share.weighted([jobs[0], changed], NODES)
    assert news[0] is first[0]
    assert (news[1].cpu_seconds, news[1].tenant_weight) == (7.0, 2.0)
