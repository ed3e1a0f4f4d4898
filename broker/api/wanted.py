"""What is wanted of a node, as the wire has it; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.endpoints import wanted_endpoints, wanted_models
from tiercel.core.endpoints import Verdict
from tiercel.core.jobs import TierState, without_script_text
from tiercel.core.wire import to_proto
from tiercel.v1 import common_pb2, nodes_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.node_messages import Wanted
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.lifecycle.node import Fence
    from tiercel.broker.store.logs import RunLogs

_VERDICTS = {
    Verdict.OPEN: nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED,
    Verdict.LIVE: nodes_pb2.DELIVERY_VERDICT_LIVE,
    Verdict.HELD: nodes_pb2.DELIVERY_VERDICT_HELD,
}


def wanted_to_proto(wanted: Wanted, logs: RunLogs) -> nodes_pb2.WantedState:
    """Everything that is wanted of a node."""
    return nodes_pb2.WantedState(
        generation=wanted.generation,
        runs=[_run_to_proto(run, logs) for run in wanted.runs],
        deliveries=[_delivery_to_proto(delivery) for delivery in wanted.deliveries],
        endpoints=wanted_endpoints(wanted.endpoints) if wanted.endpoints is not None else (),
        endpoints_pending=wanted.endpoints is None,
        models=wanted_models(wanted.models),
        answered_elsewhere=sorted(wanted.answered_elsewhere),
    )


def fence_to_proto(fence: Fence | None) -> nodes_pb2.Fence | None:
    """How long an agent may go without the broker; None for however long it takes."""
    return None if fence is None else to_proto(fence, nodes_pb2.Fence)


def _run_to_proto(run: WantedRun, logs: RunLogs) -> nodes_pb2.WantedRun:
    job = run.job
    return nodes_pb2.WantedRun(
        run_id=run.run_id,
        job_id=job.id,
        tenant=job.tenant,
        spec=to_proto(without_script_text(job.spec), common_pb2.JobSpec),
        share=to_proto(job.share, common_pb2.Share) if job.share is not None else None,
        log_offset_bytes=logs.size(run.run_id),
        stop=run.stop,
        finish=run.finish,
        carry=job.is_leaving,
        carried_run_id=job.carried_run,
        warm_start_job_id=job.spec.warm_start if job.starts_warm else "",
        retried=job.retries < job.spec.retries,
        script_sha256=run.script_sha256,
        delivered_tiers=[tier.number for tier in job.tiers if tier.state is TierState.DELIVERED],
    )


def _delivery_to_proto(wanted: WantedDelivery) -> nodes_pb2.WantedDelivery:
    delivery = wanted.delivery
    said = delivery.cheap_variants if delivery.is_deployment else ()
    return nodes_pb2.WantedDelivery(
        delivery_id=delivery.id,
        run_id=wanted.run_id,
        tier=delivery.tier,
        target=delivery.target,
        endpoint=delivery.endpoint,
        version=delivery.version,
        metric=wanted.metric,
        direction=common_pb2.Direction.Value(f"DIRECTION_{wanted.direction.name}"),
        variant=delivery.variant,
        verdict=_VERDICTS[delivery.verdict],
        deployed_sha256=delivery.sha256 if delivery.is_deployment else "",
        cheap_variants=[to_proto(each, common_pb2.CheapVariant) for each in said],
    )
