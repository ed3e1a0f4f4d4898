"""What a tenant may use, and does."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.jsonable import Jsonable

MAX_ACTIVE_JOBS = 100_000


@dataclass(frozen=True, slots=True)
class Quota(Jsonable):
    """What a tenant may use, and does."""

    tenant: str  # its name
    max_active_jobs: int  # how many unfinished jobs it may have
    is_set: bool  # whether the operator set that while the broker ran; else ``tenants.toml`` says it
    weight: float  # what its jobs are worth among those of others
    active_jobs: int  # its jobs that are not over
    running_jobs: int  # those of them that hold something of a node
    cpu_cores: float  # cores that these asked for
    memory_bytes: int  # memory that they reserved
    accelerators: int  # accelerators that they hold a part of
    projects_bytes: int  # what its projects have at the broker
    max_projects_bytes: int  # what they may have
    files_bytes: int  # what the files have that its jobs left behind
    max_files_bytes: int  # what they may have
