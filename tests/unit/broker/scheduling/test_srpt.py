"""Shortest remaining work as earlier runs tell it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, node, snapshot, tiers
from tiercel.broker.scheduling.interface import CurvePoint, JobView, PastRun, Snapshot
from tiercel.broker.scheduling.srpt import SrptPolicy

POLICY = SrptPolicy()


def past(work: float) -> tuple[PastRun, ...]:
    """A program that needs so many CPU seconds to 0.9."""
    return (PastRun((CurvePoint(work / 10, 0.1), CurvePoint(work, 0.9), CurvePoint(2 * work, 0.99))),)


def known(name: str, workload: str, spent: float = 0.0) -> JobView:
    return replace(job(name, cpu_cores=1.0), workload=workload, cpu_seconds=spent)


def at(*jobs: JobView, short: float = 30.0) -> Snapshot:
    return replace(snapshot(jobs, [node(cpu_cores=1.0)]), history={"short": past(short), "long": past(40.0)})


def order(seen: Snapshot) -> list[str]:
    return [each.job_id for each in POLICY.plan(seen, POLICY.initial_state())[0].assignments]


def test_who_needs_least_goes_first_and_of_whom_nothing_is_known_last() -> None:
    assert order(at(known("a", "never seen"), known("b", "long"), known("c", "short"))) == ["c", "b", "a"]


@pytest.mark.parametrize(
    "news",
    [
        at(known("a", "long", spent=25.0), known("b", "short")),
        at(replace(known("a", "long"), tiers=tiers(0.1)), known("b", "short")),
        at(known("a", "long"), known("b", "short"), short=400.0),
    ],
    ids=["worked on", "another target", "another earlier run"],
)
def test_what_is_remembered_of_a_job_gives_way_to_news(news: Snapshot) -> None:
    before, state = POLICY.plan(at(known("a", "long"), known("b", "short")), POLICY.initial_state())
    after, _ = POLICY.plan(news, state)
    assert [each.job_id for each in before.assignments] == ["b", "a"]
    assert [each.job_id for each in after.assignments] == order(news) == ["a", "b"]


def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    _, state = POLICY.plan(at(known("a", "long"), known("b", "short")), POLICY.initial_state())
    _, state = POLICY.plan(at(known("b", "short")), state)
    assert set(state.known) == {"b"}
