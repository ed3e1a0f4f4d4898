"""What a tenant may use, and does."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.jsonable import Jsonable

MAX_ACTIVE_JOBS = 100_000
MAX_HOURS = 1e9


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an operator lets a tenant use, in place of ``tenants.toml``; None where that counts."""

    max_active_jobs: int | None = None  # how many unfinished jobs it may have
    max_core_hours: float | None = None  # how many hours of cores its jobs may have used, as they fade
    max_accelerator_hours: float | None = None  # how many of accelerators, alike


@dataclass(frozen=True, slots=True)
class UsableClass:
    """A priority class that a tenant may use."""

    name: str  # as specs name it
    value: int  # whose is larger goes first; jobs without a class have 0
    preempts: bool  # whether jobs of lower values are suspended for it where there is no room else


@dataclass(frozen=True, slots=True)
class Quota(Jsonable):
    """What a tenant may use, and does."""

    tenant: str  # its name
    max_active_jobs: int  # how many unfinished jobs it may have
    is_set: bool  # whether the operator set any of it while the broker ran; else ``tenants.toml`` says it
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
    core_hours: float  # hours of cores that its jobs have used; after each half-life half of them count
    max_core_hours: float | None  # how many they may have used; None for as many as they like
    accelerator_hours: float  # the same of accelerators
    max_accelerator_hours: float | None  # how many they may have used; None for as many as they like
    half_life_seconds: float  # after how long half of what was used counts
    fair_factor: float = 1.0  # how many times as much as its weight says its jobs count, by what all have used
    classes: tuple[UsableClass, ...] = ()  # the priority classes that it may use, highest value first
