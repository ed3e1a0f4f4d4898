"""Tenants."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_MAX_ACTIVE_JOBS = 20
DEFAULT_WEIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who owns jobs and endpoints.

    Attributes:
        name: Unique; lower-case letters, digits, ``-`` and ``_``.
        token: Secret that its calls carry.
        max_active_jobs: How many of its jobs may be unfinished at the same time.
        weight: What its jobs and endpoints are worth among those of others, > 0.
    """

    name: str
    token: str = field(repr=False)
    max_active_jobs: int = DEFAULT_MAX_ACTIVE_JOBS
    weight: float = DEFAULT_WEIGHT
