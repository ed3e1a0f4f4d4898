"""What a tenant may use, and does."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.views import Jsonable

MAX_ACTIVE_JOBS = 100_000


@dataclass(frozen=True, slots=True)
class Quota(Jsonable):
    """What a tenant may use, and does.

    Attributes:
        tenant: Its name.
        max_active_jobs: How many unfinished jobs it may have.
        is_set: Whether the operator set that while the broker ran; else ``tenants.toml`` says it.
        weight: What its jobs are worth among those of others.
        active_jobs: Its jobs that are not over.
        running_jobs: Those of them that hold something of a node.
        cpu_cores: Cores that these asked for.
        memory_bytes: Memory that they reserved.
        accelerators: Accelerators that they hold a part of.
        projects_bytes: What its projects have at the broker.
        max_projects_bytes: What they may have.
        files_bytes: What the files have that its jobs left behind.
        max_files_bytes: What they may have.
    """

    tenant: str
    max_active_jobs: int
    is_set: bool
    weight: float
    active_jobs: int
    running_jobs: int
    cpu_cores: float
    memory_bytes: int
    accelerators: int
    projects_bytes: int
    max_projects_bytes: int
    files_bytes: int
    max_files_bytes: int
