"""The blocking facade, against a broker in another thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing import jobs_service as wire
from testing.jobs_service import TOKEN, Script, serving_in_thread
from tiercel import JobState, NotFoundError, SyncClient, TiercelError, TierState
from tiercel.broker.client import SyncJobHandle, parse_spec
from tiercel.v1 import jobs_pb2


@pytest.fixture
def sync_client(script: Script) -> Iterator[SyncClient]:
    with serving_in_thread(script) as address, SyncClient(address, token=TOKEN) as client:
        yield client


def finished(script: Script) -> None:
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED, delivered=2)
    script.events = [wire.progress_made(1, 0.95), wire.state_changed(2, jobs_pb2.JOB_STATE_COMPLETED)]
    script.logs["j1"] = b"epoch 1\n"


def test_a_job_from_submission_to_its_end(sync_client: SyncClient, script: Script) -> None:
    finished(script)
    spec = parse_spec({"endpoint": "e", "module": "m", "metric": "loss", "direction": "min", "tiers": [1]})

    handle = sync_client.submit(spec)

    assert isinstance(handle, SyncJobHandle)
    assert handle.wait(timeout=90).state is JobState.COMPLETED
    assert handle.wait_for_tier(2).state is TierState.DELIVERED
    assert [event.sequence for event in handle.events()] == [1, 2]
    assert b"".join(handle.logs(follow=True)) == b"epoch 1\n"
    assert handle.refresh().id == handle.explain().job.id == handle.cancel().id == "j1"
    assert (handle.suspend().state, handle.resume().state) == (JobState.SUSPENDED, JobState.PENDING)
    assert (handle.retry().id, handle.retry(from_scratch=True).id) == ("j1", "j9")
    assert handle.set_priority(7).spec.priority == 7


def test_listings(sync_client: SyncClient, script: Script) -> None:
    finished(script)

    assert [job.id for job in sync_client.list_jobs()] == ["j1"]
    assert sync_client.list_jobs(active_only=True) == ()
    assert (sync_client.list_nodes(), sync_client.list_endpoints()) == ((), ())


def test_an_iterator_that_is_left_early(sync_client: SyncClient, script: Script) -> None:
    finished(script)
    events = sync_client.events(job_id="j1")

    assert next(events).sequence == 1
    events.close()

    assert sync_client.get_job("j1").id == "j1"


def test_errors_come_through(sync_client: SyncClient) -> None:
    with pytest.raises(NotFoundError):
        sync_client.job("nobody").wait()
    with pytest.raises(TiercelError, match="with SyncClient"):
        SyncClient("127.0.0.1:1", token=TOKEN).list_jobs()
