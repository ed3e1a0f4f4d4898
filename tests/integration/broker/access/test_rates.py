"""How often a token may call a real broker, and how clients bear that."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from testing.brokers import Tenant, running_broker, tenant_of, tenant_token
from testing.jobs import make_spec
from testing.membership import operator_of
from tiercel import Client, ClientOptions, QuotaExceededError, RetryPolicy
from tiercel.broker.client.tokens import create_token
from tiercel.core.errors import RateExceededError
from tiercel.core.roles import Role
from tiercel.v1 import RETRY_KEY, RETRY_TYPE, refusals_pb2


async def outcomes(tenant: Tenant, count: int) -> list[str]:
    async def once() -> str:
        try:
            await tenant.nodes()
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    return list(await asyncio.gather(*(once() for _ in range(count))))


def delay_of(error: grpc.aio.AioRpcError) -> float:
    """After how long to call again, as any client of google.rpc.RetryInfo reads it."""
    told = dict(error.trailing_metadata() or ())[RETRY_KEY]
    assert isinstance(told, bytes)
    status = refusals_pb2.RefusalStatus.FromString(told)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    assert [each.type_url for each in status.details] == [RETRY_TYPE]
    delay = refusals_pb2.RetryInfo.FromString(status.details[0].value).retry_delay
    return float(delay.seconds + delay.nanos / 1e9)


async def test_one_token_that_calls_without_end_is_told_when_to_come_back_and_others_feel_nothing(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, calls_per_second=0.5) as broker:
        async with operator_of(broker, tmp_path) as operator:
            text, _ = await create_token(operator, "eyes", tenant="alice", role=Role.VIEWER, seconds=0)
        async with (
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
            tenant_of(broker.broker_address, text) as viewer,
            tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
        ):
            found = await outcomes(alice, 40)
            assert set(found) == {"OK", "RESOURCE_EXHAUSTED"}
            assert found.count("OK") <= 8, "a burst of 2.5, and one more every two seconds that this took"
            with pytest.raises(grpc.aio.AioRpcError, match=r"0\.5 times a second") as refused:
                await alice.get("x")
            assert 0 < delay_of(refused.value) <= 2.0
            assert dict(refused.value.trailing_metadata() or ())["tiercel-error-code"] == "rate_exceeded"
            assert await outcomes(bob, 2) == await outcomes(viewer, 2) == ["OK", "OK"]


async def test_the_client_waits_for_as_long_as_it_was_told_and_within_its_deadline(tmp_path: Path) -> None:
    async with running_broker(tmp_path, calls_per_second=4.0) as broker:
        token = tenant_token(tmp_path)
        async with Client(broker.broker_address, token=token) as patient:
            began = time.monotonic()
            for _ in range(24):  # 20 of them at once
                await patient.list_nodes()
            assert time.monotonic() - began >= 0.7
            job = await patient.submit(make_spec())
            async for _ in job.events():
                break
        options = ClientOptions(deadline_seconds=0.2, retry=RetryPolicy(patience_seconds=0.0))
        async with Client(broker.broker_address, token=token, options=options) as hasty:
            with pytest.raises(RateExceededError, match="4 times a second") as refused:
                await asyncio.gather(*(hasty.list_nodes() for _ in range(30)))
            assert 0 < refused.value.seconds <= 0.3


async def test_a_quota_says_in_the_same_form_when_it_may_be_worth_asking_again(tmp_path: Path) -> None:
    tenant_token(tmp_path)
    path = tmp_path / "tenants.toml"
    path.write_text(path.read_text().replace("max_active_jobs = 20", "max_active_jobs = 1"))
    async with running_broker(tmp_path) as broker:
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            await alice.submit()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await alice.submit("other")
            assert delay_of(refused.value) == 60.0
        async with Client(broker.broker_address, token=tenant_token(tmp_path)) as client:
            with pytest.raises(QuotaExceededError, match="1 unfinished jobs"):
                await client.submit(make_spec(endpoint="third"))
