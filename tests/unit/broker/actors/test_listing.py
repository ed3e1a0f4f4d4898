"""What is read from disk to list jobs, and to begin: pages of what is asked for, and no scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from testing.actors import running_actors
from testing.stored import stored_job
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.jobs import JobState, TierState

SCRIPT_BYTES = 256 * 1024
JOBS = 200


def bytes_read() -> int:
    """That this process has read so far, from disk or from the kernel's cache."""
    counted = Path("/proc/self/io").read_text().splitlines()[0]
    return int(counted.removeprefix("rchar: "))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Two hundred finished jobs of ada with large scripts, two of bob."""
    jobs = [
        stored_job(f"{n:04}", submitted_at=n, state=JobState.COMPLETED, script=bytes(SCRIPT_BYTES)) for n in range(JOBS)
    ]
    jobs = [replace(job, tiers=tuple(replace(tier, state=TierState.DELIVERED) for tier in job.tiers)) for job in jobs]
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as writer:
        await writer.save(jobs=[*jobs, *(replace(jobs[0], id=name, tenant="bob") for name in ("bob1", "bob2"))])
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as opened:
        yield opened


async def test_listing_jobs_reads_neither_scripts_nor_other_tenants_and_beginning_does_not_either(
    store: Store,
) -> None:
    before = bytes_read()
    async with running_actors(store) as actors:
        begun = bytes_read() - before
        assert not actors.registry.jobs
        before = bytes_read()
        assert [job.id for job in await actors.service.jobs_of("bob", active_only=False)] == ["bob1", "bob2"]
        listed = bytes_read() - before
        before = bytes_read()
        page = await actors.service.jobs_of("ada", active_only=False, newest_first=True, limit=3)
        assert [job.id for job in page] == ["0199", "0198", "0197"]
        paged = bytes_read() - before
        assert await actors.service.jobs_of("ada", active_only=True) == []
    before = bytes_read()
    for number in range(JOBS):
        await store.get_job(f"{number:04}")
    assert bytes_read() - before >= JOBS * SCRIPT_BYTES, "what is counted here is what is read"
    assert begun < JOBS * SCRIPT_BYTES / 10
    assert max(listed, paged) < SCRIPT_BYTES
