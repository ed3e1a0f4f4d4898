"""Short ways to build what policies read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiercel.broker.scheduling.interface import CurvePoint, JobView, NodeView, PastRun, Plan, Snapshot, Trigger
from tiercel.core.jobs import Direction, Observation, Resources, Tier, TierState, TierStatus
from tiercel.core.shares import Share

GIB = 1024**3


def tiers(*targets: float, reached: int = 0, unreachable: Sequence[int] = ()) -> tuple[TierStatus, ...]:
    """A ladder whose first ``reached`` tiers are reached."""

    def state(number: int) -> TierState:
        if number <= reached:
            return TierState.DELIVERED
        return TierState.UNREACHABLE if number in unreachable else TierState.PENDING

    return tuple(TierStatus(number, Tier(target), state(number)) for number, target in enumerate(targets, start=1))


def reports(*values: float, cpu_per_report: float = 1.0, first: int = 1) -> tuple[Observation, ...]:
    """One report a second, the first at second ``first``, each after the same CPU time."""
    return tuple(
        Observation(at=float(index), epoch=index, value=value, cpu_seconds=index * cpu_per_report)
        for index, value in enumerate(values, start=first)
    )


def job(
    job_id: str,
    *,
    node_id: str = "node",
    movable: bool = False,
    ladder: tuple[TierStatus, ...] = tiers(0.9),
    observations: tuple[Observation, ...] = (),
    direction: Direction = Direction.MAX,
    cpu_cores: float = 4.0,
    memory_bytes: int = GIB,
    submitted_at: float = 0.0,
    runtime: str = "",
    image: str = "",
    share: Share | None = None,
) -> JobView:
    """A job that runs on ``node`` and can use all of its cores."""
    return JobView(
        id=job_id,
        tenant="tenant",
        submitted_at=submitted_at,
        direction=direction,
        tiers=ladder,
        resources=Resources(cpu_cores=cpu_cores, memory_bytes=memory_bytes),
        runtime=runtime,
        image=image,
        node_id=node_id,
        movable=movable,
        share=share,
        observations=observations,
    )


def waiting_job(
    job_id: str,
    *,
    submitted_at: float = 0.0,
    cpu_cores: float = 1.0,
    memory_bytes: int = GIB,
    runtime: str = "",
    image: str = "",
) -> JobView:
    """A job that has no node yet."""
    return job(
        job_id,
        node_id="",
        movable=True,
        submitted_at=submitted_at,
        cpu_cores=cpu_cores,
        memory_bytes=memory_bytes,
        runtime=runtime,
        image=image,
    )


def node(
    node_id: str = "node",
    *,
    cpu_cores: float = 4.0,
    memory_bytes: int = 64 * GIB,
    runtimes: tuple[str, ...] = ("process",),
    images: Iterable[str] = (),
) -> NodeView:
    """A node that can run processes."""
    return NodeView(node_id, cpu_cores, memory_bytes, runtimes, frozenset(images))


def snapshot(
    jobs: Iterable[JobView], nodes: Iterable[NodeView] | None = None, *, trigger: Trigger = Trigger.INTERVAL
) -> Snapshot:
    """A snapshot of the jobs on one node, or on the nodes given."""
    return Snapshot(now=1000.0, trigger=trigger, jobs=tuple(jobs), nodes=(node(),) if nodes is None else tuple(nodes))


def past(*points: tuple[float, float]) -> tuple[PastRun, ...]:
    """Three runs of this curve: CPU seconds and value."""
    return (PastRun(tuple(CurvePoint(*point) for point in points)),) * 3


def weights(plan: Plan) -> dict[str, float]:
    """The CPU weight of each job."""
    return {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}


def reasons(plan: Plan) -> dict[str, str]:
    """The reason of each job's share."""
    return {entry.job_id: entry.share.reason for entry in plan.assignments}
