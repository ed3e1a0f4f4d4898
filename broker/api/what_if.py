"""The service that says what would happen; see ``protos/tiercel/v1/what_if.proto``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.job_ids import the_one
from tiercel.broker.api.auth import caller_by_metadata
from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.what_if import MAX_CHANGES, Changes
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import what_if_pb2, what_if_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.actors.predictions import Predictions
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.what_if.present import Present

MAX_FACTOR = 1000.0
MAX_CORES = 4096.0
PREDICTIONS, MAX_PREDICTIONS = 100, 1000


class WhatIfService(what_if_pb2_grpc.WhatIfServiceServicer):
    """Translates questions of tenants and operators."""

    def __init__(self, predictions: Predictions, tenancy: Tenancy) -> None:
        self._predictions = predictions
        self._tenancy = tenancy

    async def AskWhatIf(self, request: what_if_pb2.AskWhatIfRequest, context: Context) -> what_if_pb2.AskWhatIfResponse:
        """Simulate the present as it is and with changes."""
        tenant = self._tenant(context)
        changes = from_proto(Changes, request.changes)
        _check(changes)
        present = self._predictions.present()
        jobs = [job.id for job in present.snapshot.jobs if tenant in {"", job.tenant}]
        changes = _with_whole_ids(changes, jobs)
        if tenant:
            _check_own(changes, present, tenant)
        found = await self._predictions.ask(present, changes, tenant, asker=f"tenant {tenant}")
        return to_proto(found, what_if_pb2.AskWhatIfResponse)

    async def ListPredictions(
        self, request: what_if_pb2.ListPredictionsRequest, context: Context
    ) -> what_if_pb2.ListPredictionsResponse:
        """What was predicted and what came."""
        if request.limit > MAX_PREDICTIONS:
            raise wrong_field("limit", f"is {request.limit}; give at most {MAX_PREDICTIONS}")
        limit = request.limit or PREDICTIONS
        found = await self._predictions.record(self._tenant(context), request.job_id, limit)
        return to_proto(found, what_if_pb2.ListPredictionsResponse)

    def _tenant(self, context: Context) -> str:
        """Who calls; empty for an operator."""
        tenant = caller_by_metadata(context.invocation_metadata(), self._tenancy).tenant
        return tenant.name if tenant is not None else ""


def _with_whole_ids(changes: Changes, jobs: Iterable[str]) -> Changes:
    """Jobs by their ids, where a beginning is one job's alone."""
    known = sorted(jobs)

    def whole(job_id: str) -> str:
        if not job_id or job_id in known:
            return job_id
        return the_one(job_id, [each for each in known if each.startswith(job_id)]) or job_id

    return replace(
        changes,
        cancel=tuple(map(whole, changes.cancel)),
        priorities={whole(job_id): priority for job_id, priority in changes.priorities.items()},
        add_like=tuple(map(whole, changes.add_like)),
    )


def _check(changes: Changes) -> None:
    """Refuse too many changes, and numbers that are out of bounds."""
    for name in Changes.__dataclass_fields__:
        if name != "policy" and len(getattr(changes, name)) > MAX_CHANGES:
            raise wrong_field(name, f"has more than {MAX_CHANGES} entries; ask about fewer")
    for endpoint, factor in changes.requests.items():
        if not (0 < factor <= MAX_FACTOR):
            raise wrong_field(f"requests[{endpoint}]", f"is {factor:g}; give a factor from above 0 to {MAX_FACTOR:g}")
    for number, node in enumerate(changes.add_nodes):
        if not (math.isfinite(node.cpu_cores) and 0 <= node.cpu_cores <= MAX_CORES):
            raise wrong_field(f"add_nodes[{number}].cpu_cores", f"is {node.cpu_cores:g}; give 0 to {MAX_CORES:g}")
    if changes.policy_options and not changes.policy:
        raise wrong_field("policy_options", "are given without a policy; name the policy as well")


def _check_own(changes: Changes, present: Present, tenant: str) -> None:
    """A tenant changes what is its own; of others' jobs and endpoints it does not learn that they exist."""
    jobs = {job.id for job in present.snapshot.jobs if job.tenant == tenant}
    for job_id in (*changes.cancel, *changes.priorities, *changes.add_like):
        if job_id not in jobs:
            raise NotFoundError(f"there is no job {job_id} that waits or runs; 'tiercel ls' lists them")
    endpoints = {each.name.partition("@")[0] for each in present.snapshot.endpoints if each.tenant == tenant}
    for name in changes.requests:
        if name not in endpoints:
            raise NotFoundError(f"there is no endpoint {name} that answers; 'tiercel endpoints' lists them")
