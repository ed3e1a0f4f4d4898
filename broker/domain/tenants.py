"""Tenants."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_MAX_ACTIVE_JOBS = 20


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who owns jobs and endpoints.

    Attributes:
        name: Unique; lower-case letters, digits, ``-`` and ``_``.
        token: Secret that its calls carry.
        max_active_jobs: How many of its jobs may be unfinished at the same time.
    """

    name: str
    token: str = field(repr=False)
    max_active_jobs: int = DEFAULT_MAX_ACTIVE_JOBS
