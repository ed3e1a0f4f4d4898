"""Events to publish or stream in tests."""

from __future__ import annotations

from tiercel.core.endpoints import Version
from tiercel.core.events import (
    EndpointEvent,
    JobChange,
    JobEvent,
    NodeEvent,
    ProgressMade,
    ShareChanged,
    StateChanged,
    TierChanged,
)
from tiercel.core.jobs import JobState, Tier, TierState, TierStatus
from tiercel.core.shares import Share

AT = 1_700_000_000.25
"""2023-11-14T22:13:20.250Z."""


def job_event(change: JobChange, *, sequence: int = 1, job_id: str = "j1", tenant: str = "default") -> JobEvent:
    return JobEvent(sequence=sequence, job_id=job_id, tenant=tenant, at=AT, change=change)


def state_event(state: JobState, *, sequence: int = 1, job_id: str = "j1") -> JobEvent:
    return job_event(StateChanged(state, "because"), sequence=sequence, job_id=job_id)


def progress_event(epoch: int, value: float = 0.5, *, sequence: int = 1, job_id: str = "j1") -> JobEvent:
    metrics = {"accuracy": value, "loss": float("nan")}
    return job_event(ProgressMade(epoch, value, metrics, cpu_seconds=1.5), sequence=sequence, job_id=job_id)


def tier_event(number: int, *, sequence: int = 1) -> JobEvent:
    status = TierStatus(
        number=number,
        tier=Tier(0.9, value=2.0),
        state=TierState.DELIVERED,
        reached_value=0.91,
        delivered_value=0.905,
        reached_seconds=4.0,
        delivered_seconds=5.0,
        version=3,
    )
    return job_event(TierChanged(status), sequence=sequence)


def share_event(*, sequence: int = 1) -> JobEvent:
    return job_event(ShareChanged("n1", Share(0.25, None, "A quarter, since four jobs run.")), sequence=sequence)


def endpoint_event(version: int = 3) -> EndpointEvent:
    delivered = Version(version, "j1", 1, "accuracy", 0.905, AT, "ab" * 32)
    return EndpointEvent("digits", "default", AT, delivered)


def node_event(*, online: bool = True) -> NodeEvent:
    return NodeEvent("n1", online, 7, AT)
