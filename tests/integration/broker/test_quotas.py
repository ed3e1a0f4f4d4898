"""What tenants may use: told to them and to the operator, changed while the broker runs, kept over restarts."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from testing.brokers import running_broker, tenant_of, tenant_token
from testing.membership import operator_of
from tiercel.broker.client.connection import Connection
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.quotas import get_quotas, set_quota
from tiercel.broker.server import Broker
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.quotas import Allowance
from tiercel.core.trust.trust import Trust


async def as_alice(broker: Broker, state_dir: Path) -> Connection:
    return await Connection.open(broker.broker_address, tenant_token(state_dir), ClientOptions(), Trust())


async def test_a_quota_is_changed_while_the_broker_runs_and_outlives_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        alice = await as_alice(broker, tmp_path)
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant:
            await tenant.submit()
            (own,) = await get_quotas(alice)
            assert (own.tenant, own.active_jobs, own.running_jobs, own.max_active_jobs) == ("alice", 1, 0, 20)
            with pytest.raises(NotFoundError):
                await get_quotas(alice, "bob")
            assert [quota.tenant for quota in await get_quotas(operator)] == ["alice", "bob"]
            assert (await set_quota(operator, "alice", Allowance(1))).is_set
            with pytest.raises(grpc.aio.AioRpcError, match="has 1 unfinished jobs and may have 1"):
                await tenant.submit(endpoint="other")
            hours = await set_quota(operator, "alice", Allowance(max_core_hours=0.0))
            assert (hours.max_active_jobs, hours.max_core_hours, hours.max_accelerator_hours) == (1, 0.0, None)
            await set_quota(operator, "alice", Allowance(max_active_jobs=5))
            with pytest.raises(grpc.aio.AioRpcError, match="used 0 hours of cores and may have used 0"):
                await tenant.submit(endpoint="other")
            await set_quota(operator, "alice", Allowance(1))
            assert (await get_quotas(operator, "bob"))[0].max_active_jobs == 20, "nobody else's"
            await alice.close()
            for wrong in (-1.0, float("nan"), float("inf")):
                with pytest.raises(InvalidSpecError, match="max_accelerator_hours"):
                    await set_quota(operator, "alice", Allowance(max_accelerator_hours=wrong))
            for name, jobs, error in (("nobody", 3, NotFoundError), ("alice", 10**6, InvalidSpecError)):
                with pytest.raises(error):
                    await set_quota(operator, name, Allowance(jobs))
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        (kept,) = await get_quotas(operator, "alice")
        assert (kept.max_active_jobs, kept.max_core_hours, kept.is_set) == (1, 0.0, True)
        back = await set_quota(operator, "alice", Allowance())
        assert (back.max_active_jobs, back.is_set) == (20, False)
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant:
            await tenant.submit(endpoint="other")
