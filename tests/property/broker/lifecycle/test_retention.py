"""Whatever is kept of whichever jobs: retention never touches what is referred to, and comes to an end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.lifecycle.retention import EVENTS, FILES, LOGS, KeptOfJob, RetentionSettings, to_remove

NOW = 1e6
KINDS = (EVENTS, LOGS, FILES)
AGES = st.floats(0, 1e6)
JOBS = st.lists(
    st.builds(
        KeptOfJob,
        job_id=st.integers(0, 20).map(str),
        tenant=st.sampled_from(("alice", "bob")),
        finished_at=st.none() | AGES,
        counts=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 9)),
        sizes=st.dictionaries(st.sampled_from(KINDS), st.integers(0, 999)),
    ),
    unique_by=lambda job: job.job_id,
)
SETTINGS = st.builds(
    RetentionSettings,
    events_seconds=AGES,
    logs_seconds=AGES,
    files_seconds=AGES,
    jobs=st.integers(0, 10),
)
NEEDED = st.frozensets(st.integers(0, 20).map(str))


@given(JOBS, NEEDED, SETTINGS)
def test_nothing_goes_that_lives_or_is_needed(
    jobs: list[KeptOfJob], needed: frozenset[str], settings: RetentionSettings
) -> None:
    known = {job.job_id: job for job in jobs}
    found = to_remove(jobs, needed, NOW, settings)
    for each in found:
        job = known[each.job_id]
        assert job.finished_at is not None
        assert job.job_id not in needed
        assert (each.tenant, each.count) == (job.tenant, job.counts[each.what])
    assert len({(each.job_id, each.what) for each in found}) == len(found)


@given(JOBS, NEEDED, SETTINGS)
def test_once_it_is_gone_nothing_more_goes(
    jobs: list[KeptOfJob], needed: frozenset[str], settings: RetentionSettings
) -> None:
    gone = {(each.job_id, each.what) for each in to_remove(jobs, needed, NOW, settings)}
    left = [
        replace(job, counts={what: n for what, n in job.counts.items() if (job.job_id, what) not in gone})
        for job in jobs
    ]
    assert to_remove(left, needed, NOW, settings) == []


@given(JOBS, NEEDED, SETTINGS)
def test_the_younger_of_two_jobs_of_a_tenant_never_goes_alone(
    jobs: list[KeptOfJob], needed: frozenset[str], settings: RetentionSettings
) -> None:
    gone = {(each.job_id, each.what) for each in to_remove(jobs, needed, NOW, settings)}
    over = [(job.finished_at, job) for job in jobs if job.finished_at is not None and job.job_id not in needed]
    for young_at, young in over:
        for old_at, old in over:
            if old.tenant == young.tenant and old_at < young_at:
                for what in KINDS:
                    assert (young.job_id, what) not in gone or not old.counts.get(what) or (old.job_id, what) in gone
