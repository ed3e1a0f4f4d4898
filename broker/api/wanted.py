"""What is wanted of a node, as the wire has it; decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.api.endpoints import wanted_endpoints, wanted_models
from tiercel.broker.api.translation import direction_to_wire, share_to_wire, spec_to_wire
from tiercel.core.endpoints import Verdict
from tiercel.core.jobs import TierState
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.node import Wanted
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.lifecycle.node import Fence
    from tiercel.broker.store.logs import RunLogs

_VERDICTS = {
    Verdict.OPEN: nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED,
    Verdict.LIVE: nodes_pb2.DELIVERY_VERDICT_LIVE,
    Verdict.HELD: nodes_pb2.DELIVERY_VERDICT_HELD,
}


def wanted_to_wire(wanted: Wanted, logs: RunLogs) -> nodes_pb2.WantedState:
    """Everything that is wanted of a node.

    Args:
        wanted: What is wanted.
        logs: Says how much of the output of runs is here.
    """
    return nodes_pb2.WantedState(
        generation=wanted.generation,
        runs=[_run_to_wire(run, logs) for run in wanted.runs],
        deliveries=[_delivery_to_wire(delivery) for delivery in wanted.deliveries],
        endpoints=wanted_endpoints(wanted.endpoints) if wanted.endpoints is not None else (),
        endpoints_pending=wanted.endpoints is None,
        models=wanted_models(wanted.models),
    )


def fence_to_wire(fence: Fence | None) -> nodes_pb2.Fence | None:
    """How long an agent may go without the broker; None for however long it takes."""
    if fence is None:
        return None
    return nodes_pb2.Fence(stop_after_seconds=fence.stop_after_seconds, end_after_seconds=fence.end_after_seconds)


def _run_to_wire(run: WantedRun, logs: RunLogs) -> nodes_pb2.WantedRun:
    job = run.job
    script = job.spec.script
    spec = spec_to_wire(replace(job.spec, script=replace(script, content=b"")) if script is not None else job.spec)
    return nodes_pb2.WantedRun(
        run_id=run.run_id,
        job_id=job.id,
        tenant=job.tenant,
        spec=spec,
        share=share_to_wire(job.share) if job.share is not None else None,
        log_offset_bytes=logs.size(run.run_id),
        stop=run.stop,
        carry=job.is_moving,
        carried_run_id=job.carried_run,
        retried=job.retries < job.spec.retries,
        script_sha256=run.script_sha256,
        delivered_tiers=[tier.number for tier in job.tiers if tier.state is TierState.DELIVERED],
    )


def _delivery_to_wire(wanted: WantedDelivery) -> nodes_pb2.WantedDelivery:
    delivery = wanted.delivery
    return nodes_pb2.WantedDelivery(
        delivery_id=delivery.id,
        run_id=wanted.run_id,
        tier=delivery.tier,
        target=delivery.target,
        endpoint=delivery.endpoint,
        version=delivery.version,
        metric=wanted.metric,
        direction=direction_to_wire(wanted.direction),
        variant=delivery.variant,
        verdict=_VERDICTS[delivery.verdict],
    )
