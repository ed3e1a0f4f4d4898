"""Short ways to build what a store keeps."""

from __future__ import annotations

from tiercel.core.endpoints import Delivery, DeliveryState, delivery_id
from tiercel.core.events import JobChange, JobEvent, ProgressMade, ShareDecision
from tiercel.core.jobs import Direction, Job, JobSpec, JobState, Script, Tier, TierStatus
from tiercel.core.run_records import RunRecord
from tiercel.core.runs import Run
from tiercel.core.shares import Share
from tiercel.core.starts import Start


def stored_job(
    job_id: str,
    *,
    tenant: str = "ada",
    submitted_at: float = 1.0,
    state: JobState = JobState.PENDING,
    idempotency_key: str = "",
    script: bytes | None = b"print('hi')\n",
) -> Job:
    """A job as its actor might save it."""
    spec = JobSpec(
        name="digits",
        endpoint="digits",
        metric="accuracy",
        direction=Direction.MAX,
        tiers=(Tier(0.9), Tier(0.97, 2.0, 60.0)),
        script=None if script is None else Script("train.py", script),
        arguments=("--seed", "1"),
    )
    return Job(
        id=job_id,
        tenant=tenant,
        spec=spec,
        submitted_at=submitted_at,
        state=state,
        tiers=tuple(TierStatus(number, tier) for number, tier in enumerate(spec.tiers, start=1)),
        idempotency_key=idempotency_key,
        run=Run(job_id, 1, "node", Share(0.5, reason="equal share")),
    )


def stored_delivery(job_id: str, tier: int, *, requested_at: float = 1.0) -> Delivery:
    """A delivery that was just asked for."""
    return Delivery(
        id=delivery_id(job_id, tier),
        job_id=job_id,
        tier=tier,
        target=0.9,
        endpoint="digits",
        version=tier,
        state=DeliveryState.REQUESTED,
        requested_at=requested_at,
    )


def stored_event(sequence: int, job_id: str = "a", *, tenant: str = "ada", change: JobChange | None = None) -> JobEvent:
    """An event; progress unless told otherwise."""
    progress = ProgressMade(epoch=sequence, value=0.5, metrics={"accuracy": 0.5}, cpu_seconds=1.5)
    return JobEvent(sequence, job_id, tenant, at=float(sequence), change=change or progress)


def stored_decision(job_id: str, weight: float) -> ShareDecision:
    """A decision to give the job this weight."""
    return ShareDecision(job_id, 1.0, "fair", "arrival", "node", Share(weight, reason="equal share"))


def stored_run_record(job_id: str, workload: str = "w", *, recorded_at: float = 1.0) -> RunRecord:
    """What is remembered of a run."""
    starts = (Start("n1", 2.5, 1.5), Start("n2", 0.1, 0.02, warm=True, stop_seconds=0.5))
    return RunRecord(job_id, workload, recorded_at, ((2.0, 0.5), (3.0, 0.75)), starts)
