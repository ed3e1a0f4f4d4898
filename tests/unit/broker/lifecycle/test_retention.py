"""What is kept no longer of jobs that are over."""

from __future__ import annotations

import math
from dataclasses import replace

from tiercel.broker.lifecycle.retention import (
    EVENTS,
    FILES,
    LOGS,
    KeptOfJob,
    RetentionSettings,
    needed_projects,
    to_remove,
)

NOW = 1_000_000.0
DAY = 86_400.0
SETTINGS = RetentionSettings(events_seconds=3 * DAY, logs_seconds=1 * DAY, files_seconds=2 * DAY, jobs=3)


def job(job_id: str, days: float | None, tenant: str = "alice", **counts: int) -> KeptOfJob:
    counts = counts or {EVENTS: 5, LOGS: 1, FILES: 2}
    sizes = {what: count * 10 for what, count in counts.items()}
    return KeptOfJob(job_id, tenant, None if days is None else NOW - days * DAY, counts, sizes)


def removed(*jobs: KeptOfJob, needed: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    return [(each.job_id, each.what) for each in to_remove(jobs, needed, NOW, SETTINGS)]


def test_each_kind_goes_at_its_own_age_and_the_oldest_job_first() -> None:
    found = removed(job("new", 0.5), job("days", 2.5), job("old", 4))
    assert found == [("old", EVENTS), ("old", LOGS), ("old", FILES), ("days", LOGS), ("days", FILES)]


def test_what_is_not_there_does_not_go() -> None:
    assert removed(job("old", 9, events=3)) == [("old", EVENTS)]


def test_nothing_goes_of_a_job_that_lives_or_is_needed() -> None:
    assert removed(job("lives", None), job("needed", 99), needed=frozenset({"needed"})) == []


def test_of_many_jobs_of_a_tenant_those_that_ended_last_are_kept() -> None:
    jobs = [job(f"j{number}", number / 100) for number in range(5)]
    found = to_remove([*jobs, job("bobs", 0.5, "bob")], frozenset({"j3"}), NOW, SETTINGS)
    assert {(each.job_id, each.reason) for each in found} == {("j4", "3 jobs ended after it")}


def test_what_it_takes_and_why_is_told() -> None:
    (events, *_) = to_remove([job("old", 4)], (), NOW, SETTINGS)
    assert (events.count, events.size_bytes, events.reason) == (5, 50, "it was over 4 days ago")


def test_by_default_what_is_young_stays_and_infinity_is_for_ever() -> None:
    assert to_remove([job("j", 60)], (), NOW, RetentionSettings()) == []
    for_ever = RetentionSettings(math.inf, math.inf, math.inf)
    assert to_remove([job("j", 10_000)], (), NOW, for_ever) == []


def test_projects_are_kept_of_jobs_that_live_are_needed_or_are_young() -> None:
    settings = replace(SETTINGS, projects_seconds=5 * DAY)
    jobs = [
        replace(job("lives", None), project="1"),
        replace(job("needed", 99), project="2"),
        replace(job("young", 4), project="3"),
        replace(job("old", 6), project="4"),
        replace(job("again", 6), project="3"),
        replace(job("bobs", 1, "bob"), project="4"),
        job("none", 1),
    ]
    assert needed_projects(jobs, {"needed"}, NOW, settings) == {"alice": {"1", "2", "3"}, "bob": {"4"}}
