"""The client over the real wire."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing import jobs_service as wire
from testing.free_ports import free_port
from testing.jobs_service import QUICK, TOKEN, Refusal, Script
from tiercel import (
    Client,
    Direction,
    EndpointBusyError,
    InvalidSpecError,
    JobSpec,
    JobState,
    NotAuthenticatedError,
    NotFoundError,
    OverloadedError,
    QuotaExceededError,
    Resources,
    Tier,
    TiercelError,
    TierState,
    UnavailableError,
)
from tiercel import Script as TrainingScript
from tiercel.v1 import common_pb2, jobs_pb2

SPEC = JobSpec(
    name="digits",
    endpoint="digits",
    metric="loss",
    direction=Direction.MIN,
    tiers=(Tier(0.5, deadline_seconds=60.0), Tier(0.1, value=2.0)),
    script=TrainingScript("train.py", b"print('training')"),
    arguments=("--seed", "1"),
    resources=Resources(cpu_cores=1.5, memory_bytes=1 << 30),
    runtime="process",
    max_epochs=7,
)


async def test_a_spec_arrives_as_it_was_given(client: Client, script: Script) -> None:
    handle = await client.submit(SPEC)

    assert handle.id == "j1"
    sent = script.submitted[0].spec
    assert (sent.script.name, sent.script.content) == ("train.py", b"print('training')")
    assert sent.direction == common_pb2.DIRECTION_MIN
    assert [(tier.target, tier.value, tier.deadline_seconds) for tier in sent.tiers] == [(0.5, 1, 60), (0.1, 2, 0)]
    assert (await handle.refresh()).spec == SPEC


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"resources": Resources(cpu_cores=0.0)}, "resources.cpu_cores"),
        ({"resources": Resources(memory_bytes=0)}, "resources.memory_bytes"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"report_timeout_seconds": 0.0}, "report_timeout_seconds"),
        ({"endpoint_objective_seconds": 0.0}, "endpoint_objective_seconds"),
        ({"tiers": (Tier(0.5), Tier(0.1, value=0.0))}, "tiers[1].value"),
        ({"tiers": (Tier(0.5, deadline_seconds=0.0),)}, "tiers[0].deadline_seconds"),
    ],
)
async def test_a_number_that_is_0_does_not_pass_for_one_that_was_left_out(
    client: Client, script: Script, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpecError, match=r"\b0(\.0)? ") as caught:
        await client.submit(replace(SPEC, **changes))

    assert caught.value.field == field
    assert script.submitted == []


@pytest.mark.parametrize("max_epochs", [0, -1, 2**32])
async def test_a_number_of_epochs_that_cannot_be_is_refused_before_it_is_sent(
    client: Client, script: Script, max_epochs: int
) -> None:
    with pytest.raises(InvalidSpecError, match="is not a number of epochs from 1 to"):
        await client.resume_job("j1", max_epochs)
    with pytest.raises(InvalidSpecError, match="is not a number of epochs from 1 to"):
        await client.submit(replace(SPEC, max_epochs=max_epochs))
    assert script.calls == []


async def test_submitting_is_repeated_under_one_key(client: Client, script: Script) -> None:
    script.refusals["SubmitJob"] = [Refusal(grpc.StatusCode.UNAVAILABLE, "unavailable", "Not yet.")]

    await client.submit(SPEC)

    assert len(script.submitted) == 2
    assert len({request.idempotency_key for request in script.submitted}) == 1
    assert script.submitted[0].idempotency_key


async def test_a_job_is_told_with_what_is_known(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job(delivered=1, best=0.93)

    job = await client.get_job("j1")

    assert job.state is JobState.RUNNING
    assert job.submitted_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (job.best_value, job.finished_seconds, job.started_seconds) == (0.93, None, None)
    first, second = job.tiers
    assert (first.state, first.delivered_seconds, first.version) == (TierState.DELIVERED, 5.0, 1)
    assert (second.state, second.reached_value, second.version) == (TierState.PENDING, None, None)
    assert job.share is not None
    assert job.share.reason == "Half, since two jobs run."
    assert job.to_json()["tiers"][0]["state"] == "delivered"
    assert job.to_json()["submitted_at"] == "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "invalid_spec", InvalidSpecError),
        (grpc.StatusCode.FAILED_PRECONDITION, "endpoint_busy", EndpointBusyError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota_exceeded", QuotaExceededError),
        (grpc.StatusCode.NOT_FOUND, "not_found", NotFoundError),
        (grpc.StatusCode.UNAUTHENTICATED, "not_authenticated", NotAuthenticatedError),
    ],
)
async def test_what_the_broker_refuses_keeps_its_code_sentence_and_field(
    client: Client, script: Script, status: grpc.StatusCode, code: str, error: type[TiercelError]
) -> None:
    script.refusals["SubmitJob"] = [Refusal(status, code, "This is why.", "tiers[1].target")]

    with pytest.raises(error) as caught:
        await client.submit(SPEC)

    assert (caught.value.code, caught.value.message, caught.value.field) == (code, "This is why.", "tiers[1].target")
    assert len(script.submitted) == 1, "only what is unavailable is tried again"


async def test_a_broker_that_stays_overloaded_is_reported_after_the_last_attempt(
    client: Client, script: Script
) -> None:
    refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "overloaded", "The queue is full; try again.")
    script.refusals["ListJobs"] = [refusal] * 9

    with pytest.raises(OverloadedError, match="The queue is full"):
        await client.list_jobs()

    assert script.calls == ["ListJobs"] * 3


async def test_a_wrong_token_is_refused(address: str) -> None:
    async with Client(address, token="wrong") as client:
        with pytest.raises(NotAuthenticatedError):
            await client.list_jobs()


async def test_no_broker_at_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with Client(address, token=TOKEN, options=QUICK) as client:
        with pytest.raises(UnavailableError, match=f"{address} does not answer.*tiercel up"):
            await client.list_jobs()
        with pytest.raises(UnavailableError):
            await anext(client.events())


async def test_a_client_that_was_not_opened_says_so() -> None:
    with pytest.raises(TiercelError, match="async with"):
        await Client("127.0.0.1:1", token=TOKEN).list_jobs()


async def test_listings(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job("j1")
    script.jobs["j2"] = wire.job("j2", jobs_pb2.JOB_STATE_COMPLETED)
    script.nodes.append(jobs_pb2.Node(id="n1", state=jobs_pb2.NODE_STATE_ONLINE, cpu_cores=2, runtimes=["process"]))
    version = jobs_pb2.EndpointVersion(
        version=2, job_id="j1", tier=1, metric="accuracy", value=0.91, delivered_at=wire.SUBMITTED
    )
    script.endpoints.append(jobs_pb2.Endpoint(name="digits", live_version=2, versions=[version]))

    assert [job.id for job in await client.list_jobs()] == ["j1", "j2"]
    assert [job.id for job in await client.list_jobs(active_only=True)] == ["j1"]
    script.jobs |= {name: wire.job(name) for name in ("j3", "j4", "j5")}
    assert [job.id for job in await client.list_jobs()] == ["j1", "j2", "j3", "j4", "j5"], "page by page"
    assert [job.id for job in await client.list_jobs(limit=3)] == ["j3", "j4", "j5"], "the newest"
    assert [job.id for job in await client.list_jobs(limit=9)] == ["j1", "j2", "j3", "j4", "j5"]
    with pytest.raises(InvalidSpecError, match="limit: 0 is not a number of jobs"):
        await client.list_jobs(limit=0)
    (node,) = await client.list_nodes()
    assert (node.id, node.online, node.runtimes) == ("n1", True, ("process",))
    (endpoint,) = await client.list_endpoints()
    assert (endpoint.live_version, endpoint.versions[0].value) == (2, 0.91)


async def test_explaining(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job()
    share = common_pb2.Share(cpu_weight=0.25, cpu_cap_cores=1, reason="A quarter.")
    script.decisions.append(
        jobs_pb2.Decision(at=wire.SUBMITTED, policy="tradl", trigger="tier", node_id="n1", share=share)
    )

    explanation = await client.job("j1").explain()

    (decision,) = explanation.decisions
    assert (decision.policy, decision.trigger, decision.share.cpu_cap_cores) == ("tradl", "tier", 1)
    assert explanation.job.id == "j1"


async def test_cancelling(client: Client, script: Script) -> None:
    script.jobs["j1"] = wire.job()

    assert (await client.job("j1").cancel()).state is JobState.CANCELLED
    with pytest.raises(NotFoundError, match="tiercel ls"):
        await client.job("j2").cancel()


async def test_a_client_from_a_state_directory(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)
    with pytest.raises(UnavailableError, match="tiercel up"):
        Client.from_state_dir(tmp_path)
    (tmp_path / "addresses.json").write_text(f'{{"broker": "{address}"}}')
    with pytest.raises(NotAuthenticatedError, match="TIERCEL_TOKEN"):
        Client.from_state_dir(tmp_path)
    (tmp_path / "tenants.toml").write_text(f'[tenants.default]\ntoken = "{TOKEN}"\n')
    with pytest.raises(NotAuthenticatedError, match="known: default"):
        Client.from_state_dir(tmp_path, tenant="other")

    async with Client.from_state_dir(tmp_path) as client:
        assert await client.list_jobs() == ()
    monkeypatch.setenv("TIERCEL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert Client.from_state_dir().address == Client.from_state_dir(f"~/{tmp_path.name}").address == address
    monkeypatch.setenv("TIERCEL_TOKEN", "wrong")
    async with Client.from_state_dir(tmp_path) as client:
        with pytest.raises(NotAuthenticatedError):
            await client.list_jobs()
