"""What a store does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from testing.stored import stored_decision, stored_delivery, stored_event, stored_job, stored_run_record
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState, Endpoint, Version
from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.events import ProgressMade, ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import Direction, Job, JobState, Tier, TierStatus
from tiercel.core.secrets import SealedSecret
from tiercel.core.shares import Share
from tiercel.core.tenant_use import TenantUse

ENDPOINT = Endpoint(
    "digits",
    "ada",
    next_version=2,
    versions=(Version(1, "a", 1, "accuracy", 0.91, 5.0, "00", Direction.MAX),),
    objective_seconds=0.05,
)


async def test_everything_comes_back_after_opening_again(reopened: Callable[[], Store]) -> None:
    job, delivery, decision = stored_job("a"), stored_delivery("a", 1), stored_decision("a", 0.5)
    events = [
        stored_event(1, change=StateChanged(JobState.RUNNING, "placed")),
        stored_event(2),
        stored_event(3, change=TierChanged(TierStatus(1, Tier(0.9), reached_value=0.91))),
        stored_event(4, change=ShareChanged("node", Share(0.5, 1.5, "why"))),
    ]
    record = stored_run_record("a")
    async with reopened() as store:
        await store.save(run_records=[record], uses=[TenantUse("bob", 1.0, 2.0, 3.0), TenantUse("ada", 4.0, 0.0, 5.0)])
        await store.save(uses=[TenantUse("bob", 6.0, 7.0, 8.0)])
        await store.save(jobs=[job], deliveries=[delivery], endpoints=[ENDPOINT], decisions=[decision], events=events)
    async with reopened() as store:
        assert await store.get_job("a") == job
        assert await store.load_deliveries() == [delivery]
        assert await store.load_endpoints() == [ENDPOINT]
        assert await store.decisions_of("a", limit=9) == [decision]
        assert await store.events_after(0) == events
        assert await store.load_run_records() == [record]
        assert await store.load_uses() == [TenantUse("ada", 4.0, 0.0, 5.0), TenantUse("bob", 6.0, 7.0, 8.0)]


async def test_an_empty_store_has_nothing(store: Store) -> None:
    await store.save()
    assert await store.list_jobs() == []
    assert await store.get_job("a") is None
    assert await store.load_deliveries() == []
    assert await store.load_endpoints() == []
    assert await store.events_after(0) == []
    assert await store.last_sequence() == 0
    assert await store.load_progress("a", limit=5) == []
    assert await store.decisions_of("a", limit=5) == []
    assert await store.load_run_records() == []
    assert await store.load_secrets("ada") == []
    assert await store.load_uses() == []
    assert await store.delete_secret("ada", "KEY") is False
    assert await store.prune_run_records(5, 5) == 0
    assert await store.prune_events(5) == 0
    assert await store.prune_decisions(5) == 0


async def test_saving_again_replaces(store: Store) -> None:
    job, delivery = stored_job("a"), stored_delivery("a", 1)
    await store.save(jobs=[job], deliveries=[delivery], endpoints=[ENDPOINT], events=[stored_event(1)])
    job = replace(job, state=JobState.RUNNING, epoch=3, latest_value=0.5)
    delivery = replace(delivery, state=DeliveryState.DELIVERED, delivered_at=9.0)
    endpoint = replace(ENDPOINT, node_id="node")
    event = stored_event(1, change=StateChanged(JobState.RUNNING, ""))
    await store.save(jobs=[job], deliveries=[delivery], endpoints=[endpoint], events=[event])
    assert await store.get_job("a") == job
    assert await store.load_deliveries() == [delivery]
    assert await store.load_endpoints() == [endpoint]
    assert await store.events_after(0) == [event]


async def test_a_script_comes_back_byte_by_byte_also_for_a_job_saved_many_times(
    reopened: Callable[[], Store],
) -> None:
    job = stored_job("a", script=bytes(range(256)) * 4096)
    async with reopened() as store:
        await store.save(jobs=[job, stored_job("b", script=None), stored_job("c", script=b"")])
        await store.save(jobs=[replace(job, epoch=1)])
    async with reopened() as store:
        await store.save(jobs=[replace(job, epoch=2)])
        assert await store.get_job("a") == replace(job, epoch=2)
        assert await store.get_job("b") == stored_job("b", script=None)
        assert await store.get_job("c") == stored_job("c", script=b"")


async def test_numbers_that_are_not_finite_survive(reopened: Callable[[], Store]) -> None:
    job = replace(stored_job("a"), latest_value=math.nan, best_value=-math.inf)
    change = ProgressMade(1, math.nan, {"loss": math.inf, "other": math.nan}, 0.0)
    async with reopened() as store:
        await store.save(jobs=[job], events=[stored_event(1, change=change)])
    async with reopened() as store:
        assert repr(await store.get_job("a")) == repr(job)
        assert repr((await store.events_after(0))[0].change) == repr(change)


async def test_jobs_come_by_submission_and_finished_ones_can_be_left_out(store: Store) -> None:
    await store.save(
        jobs=[
            stored_job("c", submitted_at=1.0),
            stored_job("b", submitted_at=2.0, state=JobState.CANCELLED),
            stored_job("d", submitted_at=2.0, state=JobState.STOPPING),
            stored_job("a", submitted_at=3.0, state=JobState.COMPLETED),
            stored_job("e", submitted_at=0.5, state=JobState.FAILED),
        ]
    )
    assert [job.id for job in await store.list_jobs()] == ["e", "c", "b", "d", "a"]
    assert [job.id for job in await store.list_jobs(active_only=True)] == ["c", "d"]


async def test_jobs_are_listed_a_page_at_a_time_without_their_scripts(store: Store) -> None:
    states = [JobState.RUNNING, JobState.FAILED]
    jobs = [stored_job(f"{n}", submitted_at=n // 3, tenant="ab"[n % 2], state=states[n // 4 % 2]) for n in range(12)]
    await store.save(jobs=jobs)
    for tenant, newest_first, active_only in itertools.product([None, "a", "b"], [False, True], [False, True]):
        expected = sorted(
            (j for j in jobs if tenant in {None, j.tenant} and not (active_only and j.state.is_final)),
            key=lambda job: (job.submitted_at, job.id),
            reverse=newest_first,
        )
        found: list[Job] = []
        after = None
        while page := await store.list_jobs(
            tenant=tenant, active_only=active_only, after=after, newest_first=newest_first, limit=2
        ):
            assert len(page) <= 2
            found += page
            after = (page[-1].submitted_at, page[-1].id)
        assert [job.id for job in found] == [job.id for job in expected]
        assert all(job.spec.script is not None and job.spec.script.content == b"" for job in found)


async def test_ids_are_found_by_their_beginning_as_it_is_written(store: Store) -> None:
    jobs = [stored_job(name) for name in ("ab1", "ab2", "ac", "Ab3", "a%")]
    await store.save(jobs=[*jobs, stored_job("ab9", tenant="bob")])
    assert await store.job_ids("ada", "ab", limit=9) == ["ab1", "ab2"]
    assert await store.job_ids("ada", "ab", limit=1) == ["ab1"]
    assert await store.job_ids("ada", "a%", limit=9) == ["a%"]
    assert await store.job_ids("bob", "", limit=9) == ["ab9"]


async def test_a_job_is_found_by_the_key_its_tenant_gave(store: Store) -> None:
    mine, other = stored_job("a", idempotency_key="k"), stored_job("b", tenant="bob", idempotency_key="k")
    await store.save(jobs=[mine, other, stored_job("c"), stored_job("d")])
    assert await store.find_job("ada", "k") == mine
    assert await store.find_job("bob", "k") == other
    assert await store.find_job("ada", "l") is None
    assert await store.find_job("ada", "") is None
    await store.save(jobs=[replace(mine, epoch=5)])
    assert await store.find_job("ada", "k") == replace(mine, epoch=5)


async def test_a_second_job_under_a_key_is_refused_and_nothing_of_the_call_is_kept(store: Store) -> None:
    await store.save(jobs=[stored_job("a", idempotency_key="k")], events=[stored_event(1)])
    with pytest.raises(InvalidSpecError, match="idempotency key") as caught:
        await store.save(
            jobs=[stored_job("fine"), stored_job("b", idempotency_key="k")],
            deliveries=[stored_delivery("b", 1)],
            endpoints=[ENDPOINT],
            decisions=[stored_decision("b", 0.5)],
            events=[stored_event(2)],
        )
    assert caught.value.field == "idempotency_key"
    assert [job.id for job in await store.list_jobs()] == ["a"]
    assert (await store.load_deliveries(), await store.load_endpoints()) == ([], [])
    assert await store.decisions_of("b", limit=9) == []
    assert await store.last_sequence() == 1
    # and the store works on, also for a job that the failed call brought
    await store.save(jobs=[stored_job("fine")])
    assert await store.get_job("fine") == stored_job("fine")


async def test_deliveries_come_by_time_and_by_job(store: Store) -> None:
    late, early = stored_delivery("a", 1, requested_at=2.0), stored_delivery("b", 1, requested_at=1.0)
    later = stored_delivery("a", 2, requested_at=3.0)
    await store.save(deliveries=[later, late, early])
    assert await store.load_deliveries() == [early, late, later]
    assert await store.load_deliveries("a") == [late, later]
    assert await store.load_deliveries("c") == []


async def test_events_are_read_from_a_cursor_on_by_job_and_tenant(store: Store) -> None:
    await store.save(events=[stored_event(3, "b", tenant="bob"), stored_event(1, "a"), stored_event(2, "c")])
    await store.save(events=[stored_event(4, "a")])

    async def numbers(sequence: int, **narrowed: str) -> list[int]:
        return [event.sequence for event in await store.events_after(sequence, limit=10, **narrowed)]

    assert await numbers(0) == [1, 2, 3, 4]
    assert await numbers(2) == [3, 4]
    assert await numbers(0, job_id="a") == [1, 4]
    assert await numbers(0, tenant="ada") == [1, 2, 4]
    assert await numbers(1, job_id="a", tenant="ada") == [4]
    assert await numbers(0, job_id="a", tenant="bob") == []
    assert [event.sequence for event in await store.events_after(1, limit=2)] == [2, 3]
    assert await store.last_sequence() == 4


async def test_the_latest_progress_of_a_job_comes_oldest_first(store: Store) -> None:
    await store.save(events=[stored_event(sequence, "a") for sequence in range(1, 6)])
    await store.save(events=[stored_event(6, "a", change=StateChanged(JobState.RUNNING, "")), stored_event(7, "b")])
    assert [event.sequence for event in await store.load_progress("a", limit=3)] == [3, 4, 5]
    assert [event.sequence for event in await store.load_progress("a", limit=30)] == [1, 2, 3, 4, 5]
    assert await store.load_progress("a", limit=0) == []


async def test_the_latest_decisions_of_a_job_come_newest_first(store: Store) -> None:
    first, second, third = (stored_decision("a", weight) for weight in (0.1, 0.2, 0.3))
    await store.save(decisions=[first, second])
    await store.save(decisions=[stored_decision("b", 0.9), third])
    assert await store.decisions_of("a", limit=2) == [third, second]
    assert await store.decisions_of("a", limit=50) == [third, second, first]


async def test_old_progress_can_be_dropped_and_nothing_else_goes(store: Store) -> None:
    state = stored_event(1, "a", change=StateChanged(JobState.RUNNING, ""))
    await store.save(events=[state, *(stored_event(sequence, "a") for sequence in range(2, 7)), stored_event(7, "b")])
    assert await store.prune_events(2) == 3
    assert [event.sequence for event in await store.events_after(0)] == [1, 5, 6, 7]
    assert await store.prune_events(2) == 0


async def test_numbers_are_not_given_out_again_after_pruning(reopened: Callable[[], Store]) -> None:
    async with reopened() as store:
        await store.save(events=[stored_event(sequence) for sequence in range(1, 6)])
        await store.prune_events(0)
        assert await store.last_sequence() == 5
    async with reopened() as store:
        assert await store.last_sequence() == 5


async def test_old_decisions_can_be_dropped(store: Store) -> None:
    await store.save(decisions=[stored_decision("a", weight) for weight in (0.1, 0.2, 0.3)])
    await store.save(decisions=[stored_decision("b", 0.4)])
    assert await store.prune_decisions(2) == 1
    assert await store.decisions_of("a", limit=9) == [stored_decision("a", 0.3), stored_decision("a", 0.2)]
    assert await store.decisions_of("b", limit=9) == [stored_decision("b", 0.4)]


async def test_a_job_has_one_run_record_and_they_come_by_time(store: Store) -> None:
    first, second = stored_run_record("b", recorded_at=1.0), stored_run_record("a", recorded_at=1.0)
    await store.save(run_records=[first, stored_run_record("c", recorded_at=0.5), second])
    again = replace(first, recorded_at=2.0, curve=((9.0, 0.9),))
    await store.save(run_records=[again])
    assert await store.load_run_records() == [stored_run_record("c", recorded_at=0.5), second, again]


async def test_old_run_records_and_workloads_that_have_not_run_for_long_can_be_dropped(store: Store) -> None:
    names = [("a1", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("a2", "a"), ("a3", "a")]
    await store.save(
        run_records=[stored_run_record(job, workload, recorded_at=at) for at, (job, workload) in enumerate(names)]
    )
    assert await store.prune_run_records(2, 2) == 3  # the oldest of a, and all of b
    assert [record.job_id for record in await store.load_run_records()] == ["c1", "a2", "a3"]
    assert await store.prune_run_records(2, 2) == 0
    assert await store.prune_run_records(2, 0) == 3


async def test_a_store_that_is_not_open_says_so(reopened: Callable[[], Store]) -> None:
    store = reopened()
    with pytest.raises(UnavailableError, match="not open"):
        await store.list_jobs()
    async with store:
        assert await store.list_jobs() == []
    with pytest.raises(UnavailableError, match="not open"):
        await store.save(jobs=[stored_job("a")])
    await store.close()


async def test_secrets_are_their_tenants_and_the_last_one_set_counts(reopened: Callable[[], Store]) -> None:
    first, second, other = (
        SealedSecret("ada", "B", 1.0, b"\0\xff1"),
        SealedSecret("ada", "A", 2.0, b"2"),
        SealedSecret("bob", "B", 3.0, b"3"),
    )
    async with reopened() as store:
        for secret in (first, second, other):
            await store.save_secret(secret)
        await store.save_secret(replace(first, set_at=4.0, sealed=b"4"))
    async with reopened() as store:
        assert await store.load_secrets("ada") == [second, SealedSecret("ada", "B", 4.0, b"4")]
        assert await store.delete_secret("ada", "B") is True
        assert await store.load_secrets("ada") == [second]
        assert await store.load_secrets("bob") == [other]
